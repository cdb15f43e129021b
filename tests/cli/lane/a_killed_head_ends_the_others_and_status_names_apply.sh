#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
demo_spec "$work/demo.yaml"
spec=$work/demo.yaml
run 0 glmctl apply "$spec" --lane tp2 --yes
run 0 glmctl status "$spec" --lane tp2 -o json
head=$(json "$out" 'd["ranks"][0]["pid"]') other=$(json "$out" 'd["ranks"][1]["pid"]')
kill -KILL "$head"
wait_for 15 'rank 1 to end' is_gone "$other"
run 3 glmctl status "$spec" --lane tp2
says "$out" "^demo/tp2: failed"
says "$out" "rank 0 \\(pid $head\\) is gone"
says "$out" "next: glmctl apply $spec --lane tp2"
run 3 glmctl status "$spec" --lane tp2 -o json
[ "$(json "$out" 'd["state"], d["ranks"], d["next"]')" = "('failed', [], 'glmctl apply $spec --lane tp2')" ] || die "wrong JSON"
run 2 glmctl plan "$spec" --lane tp2 --detailed-exitcode
says "$out" '^changes   \+ lane tp2 is down: apply starts 2 ranks$'
# The command that it names works.
run 0 glmctl apply "$spec" --lane tp2 --yes
run 0 glmctl status "$spec" --lane tp2
run 0 glmctl stop "$spec" --lane tp2 --yes
