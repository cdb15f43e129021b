#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two ranks with a GPU each, without a GPU: what they exchange is in their graphs.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
fake_gpu
export FAKE_CUDA="gpus=2 memory=1280"
sed -e "s|checkpoint: ./exl3 *|checkpoint: $PWD/clusters/demo/exl3 |" -e 's|listen: 127.0.0.1:.*|listen: 127.0.0.1:0|' \
    -e 's|\(name: gpu1, host: local, device: cuda:\)0|\11|' clusters/demo/gpu.yaml >"$work/gpu.yaml"
spec=$work/gpu.yaml
run 0 glmctl apply "$spec" --lane tp2 --yes
run 0 glmctl status "$spec" --lane tp2 -o json
[ "$(json "$out" '[r["device"] for r in d["ranks"]]')" = "['cuda:0', 'cuda:1']" ] || die 'both ranks are on one GPU'
[ "$(ask "$(json "$out" 'd["url"]')")" = 200 ] || die "tp2 does not answer: $(cat "$work/answer")"
[ "$(json "$work/answer" 'd["choices"][0]["text"]')" = '<|assistant|><think>Start at 1 and stop' ] ||
    die "tp2 answers nonsense: $(cat "$work/answer")"
