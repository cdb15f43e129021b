#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
. cli/completion/glmctl.bash
# offers WORDS...: completes the last of them.
offers() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _glmctl
    printf '%s\n' "${COMPREPLY[*]}"
}
{
    offers glmctl pl
    offers glmctl kernels ''
    offers glmctl apply --
    offers glmctl plan x.yaml -o ''
    offers glmctl kernels dump --r
    offers glmctl explain lanes.formats.
    offers glmctl plan clusters/
}
