#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
demo_spec "$work/demo.yaml"
spec=$work/demo.yaml
run 0 glmctl plan "$spec" --lane tp2 --out "$work/tp2.plan"
rm "$spec" # it stands for itself
run 0 glmctl apply "$work/tp2.plan" --yes
url=$(tail -n 1 "$out")
[ "$(ask "$url")" = 200 ] || die "the lane does not answer"
run 0 glmctl apply "$work/tp2.plan"
[ "$(cat "$out")" = "$url" ] || die "not a no-op"
run 0 glmctl status "$work/tp2.plan"
says "$out" '^demo/tp2: live'
run 0 glmctl logs "$work/tp2.plan" 1
run 0 glmctl bench "$work/tp2.plan" --prompts 64 --reply 4 --runs 1
says "$out" '^lane,ranks,window_tokens,prompt_tokens,reply_tokens,run,ttft_ms,prefill_tok_s,decode_tok_s$'
says "$out" '^tp2,2,8192,64,4,1,[0-9.]+,[0-9.]+,[0-9.]+$'
run 0 glmctl bench "$work/tp2.plan" --prompts 1,5 --reply 2 --runs 2 -o json
[ "$(json "$out" 'd["format_version"], d["complete"], [p["prompt_tokens"] for p in d["points"]]')" = "(1, True, [1, 1, 5, 5])" ] || die "wrong JSON"
run 64 glmctl bench "$work/tp2.plan" --prompts 64,9000
says "$err" "wants lengths from 1 to 8128 .*got '9000'"
run 0 glmctl stop "$work/tp2.plan" --yes
run 1 glmctl bench "$work/tp2.plan"
says "$err" "lane 'tp2' is not live: it is stopped"
