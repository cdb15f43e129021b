#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
# Who runs build/glmctl has none in PATH: what to run next is named by the path that was typed.
demo_spec "$work/demo.yaml"
spec=$work/demo.yaml
build=$GLM_BUILD/glmctl
run 3 "$build" status "$spec"
says "$out" "next: $build apply $spec --lane tp1"
run 3 glmctl status "$spec"
says "$out" "next: glmctl apply $spec --lane tp1"
run 1 "$build" bench "$spec"
says "$err" "hint: $build apply $spec --lane tp1"
run 1 "$build" bench "$spec" -o json
[ "$(json "$out" 'd["error"]["hint"]')" = "$build apply $spec --lane tp1" ] || die "JSON says another hint"
run 64 "$build" stop "$spec" --nonsense
says "$err" "see:  $build stop --help"
run 0 "$build" apply "$spec" --yes
says "$out" "look at it: $build status $spec --lane tp1"
says "$out" "stop it:    $build stop $spec --lane tp1"
run 0 "$build" plan "$spec" --out "$work/saved"
says "$err" "next: $build apply $work/saved"
run 0 glmctl stop "$spec" --yes
