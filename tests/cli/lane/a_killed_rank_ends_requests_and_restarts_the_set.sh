#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
demo_spec "$work/demo.yaml"
spec=$work/demo.yaml
run 0 glmctl apply "$spec" --lane tp2 --yes
url=$(tail -n 1 "$out")
run 0 glmctl status "$spec" --lane tp2 -o json
head=$(json "$out" 'd["ranks"][0]["pid"]') victim=$(json "$out" 'd["ranks"][1]["pid"]')
curl -sN -m 60 "$url/v1/completions" -H 'Content-Type: application/json' \
    -d '{"prompt": "One", "max_tokens": 4000, "ignore_eos": true, "stream": true}' >"$work/stream" &
client=$!
wait_for 20 'the first token' test -s "$work/stream"
kill -KILL "$victim"
wait "$client"
says "$work/stream" '"error"'
wait_for 30 'the set to be live again' glmctl status "$spec" --lane tp2
run 0 glmctl status "$spec" --lane tp2
says "$out" '^demo/tp2: live, .*set restarted 1 time'
run 0 glmctl status "$spec" --lane tp2 -o json
[ "$(json "$out" 'd["restarts"], d["ranks"][0]["pid"], d["url"]')" = "(1, $head, '$url')" ] || die "wrong status"
[ "$(json "$out" 'd["ranks"][1]["pid"]')" != "$victim" ] || die "rank 1 is the one that was killed"
[ "$(ask "$url")" = 200 ] || die "it does not answer any more: $(cat "$work/answer")"
run 0 glmctl logs "$spec" --lane tp2
says "$out" "rank 1 .*killed by signal 9"
# What runs is still what was applied.
run 0 glmctl apply "$spec" --lane tp2 --yes
[ "$(cat "$out")" = "$url" ] || die "not a no-op"
run 0 glmctl stop "$spec" --lane tp2 --yes
