#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
demo_spec "$work/demo.yaml"
run 0 glmctl plan "$work/demo.yaml" --lane tp2 --out "$work/tp2.plan"
cp "$out" "$work/first"
run 0 glmctl plan "$work/tp2.plan"
cmp -s "$out" "$work/first" || die "the saved plan prints something else"
run 0 glmctl plan "$work/demo.yaml" --lane tp2 --out "$work/again.plan"
cmp "$work/tp2.plan" "$work/again.plan" || die "same inputs, other bytes"
run 1 glmctl plan "$work/tp2.plan" --lane tp1
says "$err" "is a plan of lane 'tp2', asked for lane 'tp1'"

# One digit of a plan, of the launch document, of the spec's text; and its end cut off.
for edit in 's/"limits": \{"streams":8,/"limits": {"streams":7,/' 's/"threads": *[0-9]*/"threads": 63/' 's/window: 8192/window: 4096/'; do
    sed -E "$edit" "$work/tp2.plan" >"$work/changed.plan"
    ! cmp -s "$work/tp2.plan" "$work/changed.plan" || die "'$edit' changed nothing"
    run 1 glmctl apply "$work/changed.plan" --yes
    says "$err" 'changed|digest'
done
head -c 5000 "$work/tp2.plan" >"$work/changed.plan"
run 1 glmctl apply "$work/changed.plan" --yes

# The file that it was made from says something else by now; a comment is enough.
echo '# more' >>"$work/demo.yaml"
run 1 glmctl apply "$work/tp2.plan" --yes
says "$err" "is stale: '.*/demo.yaml' was [0-9a-f]{12} when it was planned and is [0-9a-f]{12} now"
says "$err" 'hint: plan again: glmctl plan .*/demo.yaml --lane tp2 --out'
# Without that file it stands for itself.
rm "$work/demo.yaml"
run 0 glmctl plan "$work/tp2.plan"
# The checkpoint was replaced.
mkdir "$work/exl3"
cp clusters/demo/exl3/* "$work/exl3/"
demo_spec "$work/demo.yaml" "s|$PWD/clusters/demo/exl3|$work/exl3|"
run 0 glmctl plan "$work/demo.yaml" --out "$work/tp1.plan"
sed -i 's/"architectures"/"_note": "another", "architectures"/' "$work/exl3/config.json"
run 1 glmctl apply "$work/tp1.plan" --yes
says "$err" 'is stale: '
# Another glmd than the one that was planned with.
cp "$GLM_BUILD/glmd" "$work/glmd"
echo >>"$work/glmd"
demo_spec "$work/demo.yaml"
run 0 glmctl plan "$work/demo.yaml" --out "$work/tp1.plan"
GLM_GLMD=$work/glmd run 1 glmctl apply "$work/tp1.plan" --yes
says "$err" 'is stale: glmd was [0-9a-f]{12} when it was planned, now [0-9a-f]{12}'
