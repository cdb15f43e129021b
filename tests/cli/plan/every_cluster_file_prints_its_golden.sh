#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `glmctl plan` prints of every lane in clusters/ is the golden plan, and changes after it.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
n=0
for golden in tests/golden/clusters/*/plan.txt; do
    name=$(basename "$(dirname "$golden")")
    file=clusters/${name%%.*}.yaml lane=()
    [ -f "$file" ] || file=$(echo clusters/*/"${name%%.*}.yaml")
    [ "$name" = "${name%%.*}" ] || lane=(--lane "${name#*.}")
    run 0 glmctl plan "$file" "${lane[@]}"
    # Goldens are made for one host target, whatever machine runs this.
    sed -E 's/ to build for (x86-64|armv8)[-.a-z0-9]*;/ to build for x86-64-v3;/; /^changes /,$d' "$out" >"$work/plan"
    sed -E 's/ to build for (x86-64|armv8)[-.a-z0-9]*;/ to build for x86-64-v3;/' "$golden" >"$work/golden"
    # Bytes of scratch and grids may follow the width of the machine's registers: the last digits do.
    diff <(sed -E 's/[0-9]+\.[0-9]+ MB a token/N MB a token/' "$work/golden") \
        <(sed -E 's/[0-9]+\.[0-9]+ MB a token/N MB a token/' "$work/plan") >"$work/diff" ||
        die "$name: $(cat "$work/diff")"
    says "$out" '^changes   \+ lane .* is not running: apply starts [0-9] ranks?$'
    n=$((n + 1))
done
[ "$n" -ge 11 ] || die "only $n goldens"
