#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What is refused of lanes on GPUs, before anything is stopped or built.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
export GLM_CACHE_DIR=$work/cache
# gpu_spec [SED]...: clusters/demo/gpu.yaml with its checkpoint and any free ports.
gpu_spec() {
    local edits=()
    for edit in "$@"; do
        edits+=(-e "$edit")
    done
    sed -e "s|checkpoint: ./exl3 *|checkpoint: $PWD/clusters/demo/exl3 |" \
        -e 's|listen: 127.0.0.1:.*|listen: 127.0.0.1:0|' "${edits[@]}" clusters/demo/gpu.yaml >"$work/gpu.yaml"
}
spec=$work/gpu.yaml

gpu_spec
run 1 glmctl apply "$spec" --yes
says "$err" '^error: cannot open the CUDA driver: /nonexistent/libcuda.so.1'
says "$err" '^  hint: install NVIDIA.s driver \(Ubuntu: nvidia-driver-580-open, Debian: nvidia-driver\)'
run 1 glmctl apply "$spec" --yes -o json
[ "$(json "$out" '"CUDA driver" in d["error"]["message"], "nvidia-driver" in d["error"]["hint"]')" = '(True, True)' ] ||
    die 'wrong JSON'

fake_gpu
FAKE_CUDA=capability=80 run 1 glmctl apply "$spec" --yes
says "$err" "^error: cannot use 'cuda:0': Fake 0 has compute capability 8.0, needed is 8.9 or later"
gpu_spec 's/cuda:0/cuda:3/'
run 1 glmctl apply "$spec" --yes
says "$err" "^error: cannot open 'cuda:3': the driver shows 1 GPUs"

# A GB10 is what the spec says it is, or is not applied.
gpu_spec 's/cuda:0/gb10/' 's/1GiB/20GiB/'
run 1 glmctl apply "$spec" --yes
says "$err" "^error: node 'gpu0' is a gb10, but cuda:0 of this host is 'Fake 0' with compute capability 9.0, a GB10 has 12.1"
says "$err" '^  hint: write device: cuda:0'

# The GPU has 1 GiB, which one rank fits in; ranks that share it are summed, with what they reserve.
gpu_spec
run 1 glmctl apply "$spec" --lane tp2 --yes
says "$err" "cannot fit ranks 0, 1 of lane 'tp2' on cuda:0 of host 'local': together they need 1.15 GiB and reserve 0.00 \(their nodes declare 2.00\), it has 1.00 GiB"
gpu_spec 's/memory: 1GiB/memory: 4GiB, reserve: 1GiB/'
run 1 glmctl apply "$spec" --yes
says "$err" "cannot fit rank 0 of lane 'tp1' on cuda:0 of host 'local': together they need 0.59 GiB and reserve 1.00"

# NCCL wants a GPU a rank, and to be there.
gpu_spec 's/transport: shm/transport: nccl/'
run 1 glmctl plan "$spec" --lane tp2
says "$err" "transport 'nccl' needs a GPU a rank, but nodes 'gpu0' and 'gpu1' of lane 'tp2' share cuda:0"
says "$err" 'hint: give each rank a GPU of its own, or use shm'
gpu_spec 's/transport: shm/transport: nccl/' '/name: gpu1/s/cuda:0/cuda:1/' 's/memory: 1GiB/memory: 2GiB/'
FAKE_CUDA='gpus=2' run 0 glmctl plan "$spec" --lane tp2
GLM_NCCL=/nonexistent.so FAKE_CUDA='gpus=2' run 1 glmctl apply "$spec" --lane tp2 --yes
says "$err" 'cannot open NCCL: .*/nonexistent.so'
says "$err" 'hint: install the package libnccl2'
gpu_spec 's/host: local/host: far/'
run 1 glmctl apply "$spec" --yes
says "$err" "rank 0 is node 'gpu0' on 'far': this version applies nodes of this host only"

# All that is right is found so, as far as the compiler.
gpu_spec
GLM_NVRTC=/nonexistent.so run 1 glmctl apply "$spec" --yes
says "$out" 'kernels   [0-9]+ to build for sm_90'
says "$err" 'cannot open NVRTC.*/nonexistent.so'
says "$err" 'hint: install .*nvidia-cuda-nvrtc'
says "$err" 'nothing that runs was touched'
gpu_spec 's/cuda:0/gb10/' 's/memory: 1GiB/reserve: 64MiB/'
FAKE_CUDA=capability=121 GLM_NVRTC=/nonexistent.so run 1 glmctl apply "$spec" --yes
says "$err" 'cannot open NVRTC'
[ ! -e "$GLM_STATE_DIR/demo-gpu/tp1/launch.json" ] || die 'something was written'
