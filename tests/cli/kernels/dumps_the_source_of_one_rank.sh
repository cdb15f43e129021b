#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
spec=clusters/demo/demo.yaml
run 0 glmctl kernels dump "$spec"
says "$out" '^/\* ---- kernel embed ---- \*/$'
n=$(grep -c '^/\* ---- kernel ' "$out")
run 0 glmctl plan "$spec" -o json
# Kernels that differ in name alone are built once.
[ "$n" -ge "$(json "$out" 'd["plan"]["kernels"]')" ] || die "$n kernels dumped, more are built"
run 0 glmctl kernels dump "$spec" --kernel embed
says "$out" '^#line 1 "kernels-templates/embed.c"'
says_not "$out" 'kernel hc_read'
run 0 glmctl kernels dump "$spec" --kernel embed -o json
[ "$(json "$out" '[(k["name"], k["template"]) for k in d["kernels"]]')" = "[('embed', 'embed')]" ] || die "wrong JSON"
run 1 glmctl kernels dump "$spec" --kernel embd
says "$err" "rank 0 has no kernel 'embd'"
says "$err" "did you mean 'embed'"
run 0 glmctl kernels dump "$spec" --lane tp2 --rank 1
run 64 glmctl kernels dump "$spec" --rank 1
says "$err" "lane 'tp1' has ranks 0 to 0, asked for rank 1"
