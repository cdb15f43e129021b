#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
# nodes_spec NODE...: a lane over these nodes, and what follows from their devices.
nodes_spec() {
    local i=0 ranks=()
    printf 'apiVersion: glmctl/v1\nkind: Cluster\nname: t\nmodel: { checkpoint: %s }\nnodes:\n' \
        "$PWD/clusters/demo/exl3"
    for node in "$@"; do
        printf '  - { name: n%d, %s }\n' "$i" "$node"
        ranks+=("n$i")
        i=$((i + 1))
    done
    printf 'fabric: { transport: tcp }\nlanes: [{ name: a, ranks: [%s], listen: "127.0.0.1:0" }]\n' \
        "$(IFS=,; echo "${ranks[*]}")"
}
demo=clusters/demo/gpu.yaml

# Without a driver a plan is made all the same, and says for what.
for lane in tp1 tp2; do
    run 0 glmctl plan $demo --lane $lane
    says "$out" ' to build for sm_121a;'
    says "$err" "$demo:[0-9]+:5: warning: planned for sm_121a: cuda:0 of 'gpu0' cannot be asked: cannot open the CUDA driver: /nonexistent/libcuda.so.1.*\[node.gpu-unknown\]"
    says "$err" '= hint: install NVIDIA.s driver .*nvidia-driver'
    [ "$(grep -c warning "$err")" = 1 ] || die 'one GPU is one warning'
done
run 0 glmctl plan $demo -o json
[ "$(json "$out" '[x["id"] for x in d["diagnostics"]], d["plan"]["target"], d["plan"]["ranks"][0]["device"]')" = \
    "(['node.gpu-unknown'], 'sm_121a', 'cuda:0')" ] || die 'wrong JSON'
run 0 glmctl plan $demo --out "$work/gpu.plan"

# With one the GPU is asked; a GB10 in a spec needs no answer.
fake_gpu
run 0 glmctl plan $demo --lane tp2
says "$out" ' to build for sm_90;'
says "$out" '^ +1  gpu1  cuda:0 '
[ ! -s "$err" ] || die 'a GPU that answers is no news'
FAKE_CUDA=capability=120 run 0 glmctl plan $demo
says "$out" ' to build for sm_120a;'
FAKE_CUDA=capability=80 run 0 glmctl plan $demo
says "$err" 'planned for sm_121a: .*Fake 0 has compute capability 8.0, needed is 8.9 or later'
run 0 glmctl plan clusters/tp2-direct.yaml
says "$out" ' to build for sm_121a;'
says_not "$err" 'node.gpu-unknown'

# What was planned for a guess is not applied to what is there.
run 1 glmctl apply "$work/gpu.plan" --yes
says "$err" "is stale: kernel target was sm_121a when it was planned, now sm_90"

# A GPU of another machine is taken for one like the lane's others.
nodes_spec 'control: 10.0.0.1, device: cuda:0' 'host: far, device: cuda:1' >"$work/far.yaml"
run 0 glmctl plan "$work/far.yaml"
says "$out" ' to build for sm_90;'
says "$err" "planned for sm_90: cuda:1 of 'n1' cannot be asked: it is on 'far', and only this machine is asked"

# One lane, one target.
nodes_spec 'device: cuda:0' 'device: cuda:0' 'device: gb10' >"$work/mixed.yaml"
run 1 glmctl plan "$work/mixed.yaml"
says "$err" "error: lane 'a' needs kernels for sm_90 on node 'n0' and for sm_121a on node 'n2' \[lane.two-targets\]"
[ ! -s "$out" ] || die 'a plan was printed'
nodes_spec 'device: cpu' 'device: cuda:0' >"$work/mixed.yaml"
run 1 glmctl plan "$work/mixed.yaml"
says "$err" "needs kernels for (x86-64|armv8)[-.a-z0-9]* on node 'n0' and for sm_90 on node 'n1'"
run 1 glmctl plan "$work/mixed.yaml" -o json
[ "$(json "$out" 'd["diagnostics"][0]["id"]')" = lane.two-targets ] || die 'wrong JSON'
