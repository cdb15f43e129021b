#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
demo_spec "$work/demo.yaml"
spec=$work/demo.yaml
run 0 glmctl apply "$spec" --yes
pid=$(heads)
# What another lane and its nodes are does not matter.
demo_spec "$spec" '/name: tp2/,/formats/s/window: 8192/window: 4096/' 's/name: cpu3, /&threads: 1, /'
run 0 glmctl plan "$spec" --detailed-exitcode
demo_spec "$spec" 's/served_name: pico/served_name: small/' '/name: tp1/,/formats/s/thinking/thinking/' \
    '0,/streams: 8/s//streams: 8\n    thinking: false/'
run 2 glmctl plan "$spec" --detailed-exitcode
says "$out" '^changes   ~ lane tp1 is live with other settings: apply restarts it$'
says "$out" '^            model.served_name: pico -> small$'
says "$out" '^            lanes\[tp1\].thinking: \(default\) -> false$'
run 64 glmctl apply "$spec"
says "$err" "cannot ask 'restart lane tp1 of demo\?' without a terminal"
says "$err" 'hint: say --yes'
[ "$(heads)" = "$pid" ] || die "a refused apply touched the lane"
# What is wrong with the file is found before what runs is stopped.
sed 's/streams: 8/streams: 800/' "$spec" >"$work/bad.yaml"
run 1 glmctl restart "$work/bad.yaml" --yes
[ "$(heads)" = "$pid" ] || die "a wrong spec stopped the lane"
# So are kernels that cannot be built.
GLM_CACHE_DIR=$work/cache GLM_HOST_CC=false run 1 glmctl restart "$spec" --yes
says "$err" 'nothing that runs was touched'
[ "$(heads)" = "$pid" ] || die "kernels that cannot be built stopped the lane"
run 0 glmctl apply "$spec" --yes -o json
[ "$(json "$out" 'd["changed"], d["changes"]["action"], [x["what"] for x in d["changes"]["differences"]]')" = \
    "(True, 'restart', ['model.served_name', 'lanes[tp1].thinking'])" ] || die "wrong JSON"
says "$err" 'lane tp1 stopped: it starts anew'
is_gone "$pid" || die "the old head lives"
curl -s "$(json "$out" 'd["url"]')/v1/models" | grep -q '"small"' || die "the new name is not served"

# A spec that was damaged while the lane runs does not keep anybody from it.
printf 'nonsense: [\n' >"$work/broken.yaml"
run 1 glmctl stop "$work/broken.yaml" --yes
sed -i -e 's/streams: 8/streams: 800/' -e "s|checkpoint: .*|checkpoint: /nowhere|" "$spec"
run 0 glmctl status "$spec"
says "$out" '^demo/tp1: live'
run 0 glmctl logs "$spec"
run 0 glmctl stop "$spec" --yes
says "$err" 'lane tp1 of demo stopped'
