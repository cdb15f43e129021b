#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the ranks of the demo's lanes held at their peak, once every stream has filled its window,
# against the plan: its whole figure, and without what the head sets aside for requests. Prints CSV.
# Usage: bench/memory.sh BUILD
set -eu
cd "$(dirname "$0")/.."
build=$PWD/${1:-build}
# shellcheck source=bench/demo.sh
. bench/demo.sh

json() {
    python3 -IS -c 'import json, sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2"
}

# Eight prompts of token ids at once that end, with their replies, where the window does.
fill() {
    local pids=() pid
    printf '{"prompt": [%s7], "max_tokens": 32, "ignore_eos": true}' "$(printf '7,%.0s' $(seq 1 8158))" >"$work/body"
    for _ in 1 2 3 4 5 6 7 8; do
        curl -sf -m 600 -o /dev/null "$1/v1/completions" -H 'Content-Type: application/json' -d "@$work/body" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid"
    done
}

echo "lane,rank,planned_bytes,for_requests_bytes,peak_bytes,percent_of_plan,percent_without_requests"
for lane in tp1 tp2 tp3 tp4; do
    "$build/glmctl" apply "$spec" --lane "$lane" --yes >"$work/out" 2>"$work/err" || {
        cat "$work/err" >&2
        exit 1
    }
    fill "$(tail -n 1 "$work/out")"
    "$build/glmctl" plan "$spec" --lane "$lane" -o json >"$work/plan"
    "$build/glmctl" status "$spec" --lane "$lane" -o json >"$work/status"
    rank=0
    for pid in $(json "$work/status" '" ".join(str(r["pid"]) for r in d["ranks"])'); do
        read -r planned aside < <(json "$work/plan" \
            '"{total_bytes} {request_bytes}".format(**d["plan"]["ranks"]'"[$rank])")
        peak=$(awk '/^VmHWM:/ {print $2 * 1024}' "/proc/$pid/status")
        echo "$lane,$rank,$planned,$aside,$peak,$((100 * peak / planned)),$((100 * peak / (planned - aside)))"
        rank=$((rank + 1))
    done
    "$build/glmctl" stop "$spec" --lane "$lane" --yes >/dev/null 2>&1
done
