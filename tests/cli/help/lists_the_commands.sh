#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
run 0 glmctl --help
cp "$out" "$work/list"
run 0 glmctl help
cmp -s "$out" "$work/list" || die "'help' and '--help' differ"
run 64 glmctl
cmp -s "$err" "$work/list" || die "no command at all should print the list on standard error"
cat "$work/list"
