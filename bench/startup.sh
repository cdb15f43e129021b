#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How long a lane takes to LIVE, alone, with an empty kernel cache and with a warm one; how long
# `glmctl plan` takes. Prints CSV.
# Usage: bench/startup.sh BUILD [RUNS]
set -eu
cd "$(dirname "$0")/.."
build=$PWD/${1:-build}
runs=${2:-3}
# shellcheck source=bench/demo.sh
. bench/demo.sh
export GLM_CACHE_DIR=$work/cache

# Milliseconds of a command, whose output goes to $work/out.
clock() {
    local start=$EPOCHREALTIME end
    "$@" >"$work/out" 2>"$work/err" || {
        cat "$work/err" >&2
        exit 1
    }
    end=$EPOCHREALTIME
    echo $(((${end/[.,]/} - ${start/[.,]/}) / 1000))
}

live() {
    local lane=$1 cache=$2 run=$3 ms
    ms=$(clock "$build/glmctl" apply "$spec" --lane "$lane" --yes)
    echo "live,$lane,$cache,$run,$ms,ms"
}

plan() {
    local name=$1 run
    shift
    for ((run = 1; run <= runs; run++)); do
        echo "plan,$name,,$run,$(clock "$build/glmctl" plan "$@"),ms"
    done
}

echo "what,lane,state,run,value,unit"
for lane in tp1 tp2 tp3 tp4; do
    rm -rf "$GLM_CACHE_DIR"
    live "$lane" "empty cache" 1
    "$build/glmctl" stop "$spec" --lane "$lane" --yes >/dev/null 2>&1
    for ((run = 1; run <= runs; run++)); do
        live "$lane" warm "$run"
        "$build/glmctl" stop "$spec" --lane "$lane" --yes >/dev/null 2>&1
    done
done
plan demo "$spec"
for file in clusters/tp*.yaml; do
    plan "$(basename "$file" .yaml)" "$file"
done
for name in glm-5.3-flash small8; do
    sed -e "s|checkpoint: .*|checkpoint: synthetic:$name|" -e '/^nodes:/,/^$/s/memory: [0-9]*MiB/memory: 400GiB/' \
        -e '/^  - name: tp[34]/,$d' "$spec" >"$work/$name.yaml"
    plan "synthetic:$name" "$work/$name.yaml"
done
mkdir "$work/pack"
"$build/bench/bench_headers" "$work/pack" 120 4
sed -e "s|checkpoint: .*|checkpoint: $work/pack|" -e '/^nodes:/,/^$/s/memory: [0-9]*MiB/memory: 400GiB/' \
    -e '/^  - name: tp[34]/,$d' "$spec" >"$work/pack.yaml"
plan "headers of the full pack" "$work/pack.yaml"
