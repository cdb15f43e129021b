#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
export GLM_STATE_DIR=$work/none GLM_CACHE_DIR=$work/cache
run 0 glmctl plan clusters/demo/demo.yaml
[ ! -e "$work/none" ] && [ ! -e "$work/cache" ] || die "plan made folders"
run 2 glmctl plan clusters/demo/demo.yaml --detailed-exitcode
# Standard input, too.
demo_spec "$work/demo.yaml"
run 0 glmctl plan - --lane tp2 <"$work/demo.yaml"
says "$out" 'lane tp2: TP 2'
GLM_LANE=tp3 run 0 glmctl plan clusters/demo/demo.yaml
says "$out" 'lane tp3: TP 3'
GLM_LANE=tp3 run 0 glmctl plan clusters/demo/demo.yaml -l tp4
says "$out" 'lane tp4: TP 4'
run 1 glmctl plan clusters/demo/demo.yaml --lane tp9
says "$err" "there is no lane 'tp9' .*: it has tp1, tp2, tp3, tp4"
run 1 glmctl plan "$work/none.yaml"
says "$err" "none.yaml.*No such file"
# A result that cannot be written is a failure; a reader that has seen enough is no news.
glmctl plan clusters/demo/demo.yaml >/dev/full 2>"$err"
rc=$?
[ $rc -eq 1 ] || die "a full disk exits $rc"
says "$err" 'cannot write to standard output: No space left'
