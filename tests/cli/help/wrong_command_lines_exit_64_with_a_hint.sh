#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
try() {
    echo "\$ glmctl $*"
    run 64 glmctl "$@"
    [ ! -s "$out" ] || die "a wrong command line printed on standard output"
    cat "$err"
}
try plna
try kernels
try kernels dumb
try plan
try plan a.yaml b.yaml
try plan a.yaml --detailed-exitcodes
try plan a.yaml --lane
try plan a.yaml -o yaml
try plan a.yaml --refresh=yes
try plan a.yaml -x
try apply a.yaml --output=jsno
try logs a.yaml -n ten
try logs a.yaml -n 0
try version now
try bench clusters/demo/demo.yaml --runs 0
GLM_LANE='' try explain a b
