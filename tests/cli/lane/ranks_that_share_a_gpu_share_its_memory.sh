#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lanes on the GPU without a GPU: what they answer, where their ranks are, what they hold of it.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
fake_gpu
export FAKE_CUDA=memory=1280
sed -e "s|checkpoint: ./exl3 *|checkpoint: $PWD/clusters/demo/exl3 |" -e 's|listen: 127.0.0.1:.*|listen: 127.0.0.1:0|' \
    clusters/demo/gpu.yaml >"$work/gpu.yaml"
spec=$work/gpu.yaml
# answers LANE: its ranks compute what they should.
answers() {
    run 0 glmctl status "$spec" --lane "$1" -o json
    [ "$(ask "$(json "$out" 'd["url"]')")" = 200 ] || die "$1 does not answer: $(cat "$work/answer")"
    [ "$(json "$work/answer" 'd["choices"][0]["text"]')" = '<|assistant|><think>Start at 1 and stop' ] ||
        die "$1 answers nonsense: $(cat "$work/answer")"
}

run 0 glmctl apply "$spec" --yes
says "$out" ' to build for sm_90;'
pid=$(heads)
run 0 glmctl status "$spec"
says "$out" "^  0     $pid +live +cuda:0 "
answers tp1
run 0 glmctl apply "$spec" --yes
says "$err" 'runs exactly this: nothing to do'

# What it holds is nobody else's, but its own when it starts anew.
sed -e 's/name: demo-gpu/name: other/' "$spec" >"$work/other.yaml"
run 1 glmctl apply "$work/other.yaml" --lane tp2 --yes
says "$err" "lane 'tp2' needs 1.15 GiB on cuda:0, 0.66 GiB are free; lane 'tp1' of cluster 'demo-gpu' holds 0.59 GiB"
run 1 glmctl apply "$spec" --lane tp2 --yes
says "$err" "hint: glmctl apply $spec --lane tp2 --replace tp1"
[ "$(heads)" = "$pid" ] || die 'what runs was touched'
run 0 glmctl restart "$spec" --yes

run 0 glmctl apply "$spec" --lane tp2 --replace tp1 --yes
answers tp2
[ "$(json "$out" '[(r["state"], r["device"]) for r in d["ranks"]]')" = "[('live', 'cuda:0'), ('live', 'cuda:0')]" ] ||
    die 'wrong JSON'
run 3 glmctl status "$spec"
