#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
export GLM_CACHE_DIR=$work/cache
spec=clusters/tp2-direct.yaml

# What is not there is said in full, and what is there is the way on.
run 1 glmctl kernels build "$spec" --target sm_99z
says "$err" "target 'sm_99z', allowed: x86-64, .*sm_121a"
run 1 glmctl kernels build "$spec" --template swiglu,embd
says "$err" "no kernel of template 'embd'"
says "$err" "did you mean 'embed'"
run 1 glmctl kernels build clusters/demo/demo.yaml --target sm_121a
says "$err" "stores activations as f32, kernels for 'sm_121a' store bf16"
says "$err" 'act: bf16'
GLM_NVRTC=/nonexistent.so run 1 glmctl kernels build "$spec" --template swiglu
says "$err" 'cannot open NVRTC.*/nonexistent.so'
says "$err" 'hint: install .*nvidia-cuda-nvrtc'

# A host target needs no NVRTC; all ranks' kernels, equal ones once.
run 0 glmctl kernels build clusters/demo/demo.yaml --lane tp2 --template pick_rows -o json
[ "$(json "$out" '[(k["template"], k["compiled"]) for k in d["kernels"]]')" = "[('pick_rows', True)]" ] || die "wrong JSON"

if ! glmctl kernels build "$spec" --template swiglu >"$out" 2>"$err"; then
    grep -q 'cannot open NVRTC' "$err" || die "the build failed"
    skip "NVRTC is not installed: $(grep -m 1 'cannot open' "$err")"
fi
says "$out" '^swiglu.dense  *swiglu  *[1-9][0-9]*  *0  *0  *[1-9][0-9]*$'
says "$out" '^2 kernels for sm_121a, 2 compiled, 0 from the cache$'
run 0 glmctl kernels build "$spec" --template swiglu
says "$out" '^2 kernels for sm_121a, 0 compiled, 2 from the cache$'
run 0 glmctl kernels build "$spec" --template swiglu --target sm_90 -o json
[ "$(json "$out" '(d["target"], [k["spill_store_bytes"] for k in d["kernels"]])')" = "('sm_90', [0, 0])" ] || die "wrong JSON"
