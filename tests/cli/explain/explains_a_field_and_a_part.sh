#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
glmctl explain lanes.formats.kv
glmctl explain 'lanes[].window'
glmctl explain served_name
run 0 glmctl explain limits
says "$out" '^lanes\[\]\.limits$'
run 0 glmctl explain
[ "$(grep -c '^[a-zA-Z]' "$out")" -ge 40 ] || die "too few fields"
run 1 glmctl explain lanes.windw
says "$err" "there is no field 'lanes.windw'"
says "$err" "did you mean 'lanes\[\].window'"
[ ! -s "$out" ] || die "an error printed on standard output"
