#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
# A tokenizer that cannot serve is found before anything runs or stops, and by a head that meets one
# before it reads a weight.
mkdir "$work/checkpoint"
cp clusters/demo/exl3/*.json "$work/checkpoint"
ln -s "$PWD/clusters/demo/exl3/model.safetensors" "$work/checkpoint"
demo_spec "$work/demo.yaml" "s|checkpoint: .*|checkpoint: $work/checkpoint|"
spec=$work/demo.yaml
tokenizer=$work/checkpoint/tokenizer.json
sed -i 's/"<think>"/"<thunk>"/' "$tokenizer"
GLM_CACHE_DIR=$work/cache run 1 glmctl apply "$spec" --lane tp2 --yes
says "$err" "cannot use '$tokenizer': it has no added token '<think>', which the chat layout needs"
[ ! -e "$work/cache" ] || die "kernels were compiled"
[ -z "$(heads)" ] || die "a head runs"

# What runs is left alone.
cp clusters/demo/exl3/tokenizer.json "$tokenizer"
run 0 glmctl apply "$spec" --yes
pid=$(heads)
sed -i 's/"<think>"/"<thunk>"/' "$tokenizer"
run 1 glmctl restart "$spec" --yes
says "$err" "no added token '<think>'"
[ "$(heads)" = "$pid" ] || die "what ran was touched"
run 0 glmctl stop "$spec" --yes

# A head by itself, as a unit would start it.
run 1 "$GLM_BUILD/glmd" --launch "$GLM_STATE_DIR/demo/tp1/launch.json" --rank 0
says "$err" "glmd ends: cannot use '$tokenizer': it has no added token '<think>'"
says_not "$err" 'loading|live'
