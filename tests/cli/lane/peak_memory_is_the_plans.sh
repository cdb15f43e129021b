#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
# What a rank ever held in memory, all of the process counted, with every stream at its window: at
# most a tenth above the plan's figure even without what the head sets aside for large bodies and
# many connections, which prompts of token ids hardly touch; and not under four fifths of it: a plan
# counts what runs, not what might.
demo_spec "$work/demo.yaml" 's/window: 8192/window: 1024/'
spec=$work/demo.yaml
case $GLM_BUILD in *address* | *thread*) skip "a sanitizer has its own memory" ;; esac

# Eight prompts at once, each near the window, with replies.
fill_streams() {
    local prompt pids=()
    prompt=$(printf '7,%.0s' $(seq 1 959))7
    for _ in 1 2 3 4 5 6 7 8; do
        curl -sf -m 300 -o /dev/null "$1/v1/completions" -H 'Content-Type: application/json' \
            -d "{\"prompt\": [$prompt], \"max_tokens\": 48, \"ignore_eos\": true}" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || die "a request failed"
    done
}

for lane in tp1 tp2 tp3 tp4; do
    run 0 glmctl apply "$spec" --lane "$lane" --yes
    fill_streams "$(tail -n 1 "$out")"
    run 0 glmctl plan "$spec" --lane "$lane" -o json
    mapfile -t planned < <(json "$out" \
        '"\n".join(str(r["total_bytes"] - r["request_bytes"]) for r in d["plan"]["ranks"])')
    run 0 glmctl status "$spec" --lane "$lane" -o json
    mapfile -t pids < <(json "$out" '"\n".join(str(r["pid"]) for r in d["ranks"])')
    [ "${#pids[@]}" -eq "${lane#tp}" ] || die "$lane has ${#pids[@]} ranks"
    for rank in "${!pids[@]}"; do
        peak=$(awk '/^VmHWM:/ {print $2 * 1024}' "/proc/${pids[rank]}/status")
        echo "$lane rank $rank: planned ${planned[rank]}, peak $peak, $((100 * peak / planned[rank])) %"
        [ "$peak" -le $((planned[rank] * 11 / 10)) ] && [ "$peak" -ge $((planned[rank] * 8 / 10)) ] ||
            die "$lane rank $rank: planned ${planned[rank]} bytes, held $peak"
    done
    run 0 glmctl stop "$spec" --lane "$lane" --yes
done
