#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
for file in clusters/*.yaml clusters/demo/demo.yaml; do
    run 0 glmctl plan "$file"
    cp "$out" "$work/text"
    run 0 glmctl plan "$file" -o json
    [ ! -s "$err" ] || die "$file: JSON and prose were mixed"
    [ "$(json "$out" 'd["format_version"], list(d)[:1], d["changes"]["action"]')" = "(1, ['format_version'], 'start')" ] ||
        die "$file: wrong head"
    says "$work/text" "lane $(json "$out" 'd["plan"]["lane"]').*: TP $(json "$out" 'd["plan"]["tp"]'),"
    says "$work/text" "^pool      $(json "$out" 'd["plan"]["pool_tokens"]') tokens"
    says "$work/text" "^kernels   $(json "$out" 'd["plan"]["kernels"]') to build"
done
run 0 glmctl plan clusters/tp4-ring.yaml -o json
[ "$(json "$out" '[x["id"] for x in d["diagnostics"]][:1]')" = "['checkpoint.absent']" ] || die "no diagnostics"
