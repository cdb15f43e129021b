#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The demo's lanes on this machine's GPU: time to LIVE with an empty and a warm kernel cache, GPU
# memory against the plan's, prefill and decode over HTTP, and `glmd selftest`. Prints CSV.
# Usage: bench/gpu.sh BUILD. NVRTC and driver as GLM_NVRTC and GLM_CUDA_DRIVER say.
set -eu
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build}")
# shellcheck disable=SC2034 # read by demo.sh
demo=gpu.yaml
# shellcheck source=bench/demo.sh
. bench/demo.sh
umask 077
export GLM_CACHE_DIR=$work/cache

live() {
    local start=$EPOCHREALTIME end
    "$build/glmctl" apply "$spec" --lane "$1" --yes >"$work/out" 2>&1 || {
        cat "$work/out" >&2
        exit 1
    }
    end=$EPOCHREALTIME
    echo "live,$1,$2,,$(((${end/[.,]/} - ${start/[.,]/}) / 1000)),ms"
}
stop() { "$build/glmctl" stop "$spec" --lane "$1" --yes >/dev/null 2>&1; }
gpu_mib() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -n 1; }

echo "what,lane,point,run,value,unit"
for lane in tp1 tp2; do
    rm -rf "$GLM_CACHE_DIR"
    idle=$(gpu_mib)
    live "$lane" "empty cache"
    stop "$lane"
    live "$lane" warm
    "$build/glmctl" bench "$spec" --lane "$lane" 2>/dev/null |
        awk -F, 'NR > 1 { printf "prefill,%s,%s tokens,%s,%s,tokens/s\ndecode,%s,%s tokens,%s,%s,tokens/s\n", $1, $4, $6, $8, $1, $4, $6, $9 }'
    echo "gpu memory,$lane,measured,,$(($(gpu_mib) - idle)),MiB"
    "$build/glmctl" status "$spec" --lane "$lane" |
        awk -v lane="$lane" '$1 ~ /^[0-9]+$/ { sum += $5 } END { printf "gpu memory,%s,planned,,%s,MiB\n", lane, sum }'
    stop "$lane"
    for rank in 0 1; do
        [ "$rank" = 0 ] || [ "$lane" = tp2 ] || continue
        "$build/glmd" selftest --launch "$work/state/demo-gpu/$lane/launch.json" --rank "$rank" |
            awk -v lane="$lane" -v rank="$rank" '$6 ~ /^(ok|FAILED)/ { printf "selftest,%s,rank %s: %s,,%s ulp %s L2 %s codes,%s\n", lane, rank, $1, $3, $4, $5, $6 }'
    done
done
