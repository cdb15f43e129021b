#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `glmd selftest` on the GPU without a GPU: every template of an applied rank's plan, and a mistake in
# one of them.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
fake_gpu
sed -e "s|checkpoint: ./exl3 *|checkpoint: $PWD/clusters/demo/exl3 |" -e 's|listen: 127.0.0.1:.*|listen: 127.0.0.1:0|' \
    clusters/demo/gpu.yaml >"$work/gpu.yaml"
spec=$work/gpu.yaml
launch=$GLM_STATE_DIR/demo-gpu/tp1/launch.json
glmd=$GLM_BUILD/glmd

run 0 glmctl apply "$spec" --yes
run 0 glmctl stop "$spec" --yes
run 0 "$glmd" selftest --launch "$launch" --rank 0
for template in embed hc_mix matmul kda_prefill kda_decode dsa_select mla_attend moe_gate_up moe_down candidates draw; do
    says "$out" "^$template +[1-9][0-9]* .* 0 ok\$"
done

# A body that computes something else: what the lane runs, not what the programs hold, is tested.
cp -r kernels-templates "$work/templates"
sed -i 's/= glm_swiglu(/= 1.01f * glm_swiglu(/' "$work/templates/swiglu.cu"
! cmp -s kernels-templates/swiglu.cu "$work/templates/swiglu.cu" || die 'swiglu.cu has no such place'
GLM_TEMPLATES=$work/templates run 0 glmctl apply "$spec" --yes
run 0 glmctl stop "$spec" --yes
run 1 "$glmd" selftest --launch "$launch" --rank 0 -o json
[ "$(json "$out" '(d["passed"], [t["template"] for t in d["templates"] if not t["passed"]])')" = "(False, ['swiglu'])" ] ||
    die 'the wrong template failed'
[ "$(json "$out" '[t["steps"] > 0 and t["worst"].split(" of ")[0] for t in d["templates"] if not t["passed"]]')" != '[False]' ] ||
    die 'wrong JSON'

run 64 "$glmd" selftest --rank 0
says "$err" '^usage: glmd'
run 1 "$glmd" selftest --launch "$launch" --rank 7
says "$err" 'has ranks 0 to 0, asked for rank 7'
