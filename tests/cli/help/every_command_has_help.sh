#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
sed -n '/^commands:/,/^$/p' < <(glmctl --help) | sed -n 's/^  \([a-z]*\( [a-z]*\)\?\)  .*/\1/p' >"$work/commands"
[ "$(wc -l <"$work/commands")" -ge 10 ] || die "only $(wc -l <"$work/commands") commands"
while read -r command; do
    # shellcheck disable=SC2086 # a command may have two words
    run 0 glmctl $command --help
    says "$out" "^usage: glmctl $command"
    says "$out" '^examples:'
    says "$out" '--color auto\|always\|never'
    awk 'length > 100 { exit 1 }' "$out" || die "'$command --help' has a line of more than 100 columns"
    cp "$out" "$work/first"
    # shellcheck disable=SC2086
    run 0 glmctl help $command
    cmp -s "$out" "$work/first" || die "'help $command' differs from '$command --help'"
    # Asking for help is never wrong, whatever else is on the line.
    # shellcheck disable=SC2086
    run 0 glmctl $command --no-such-option -h
done <"$work/commands"
run 0 glmctl kernels --help
says "$out" '^usage: glmctl kernels dump'
