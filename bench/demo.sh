# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by benches that apply the demo, with $build set, from the repository: $spec is a copy of it
# ($demo, default demo.yaml) with free ports, $work and the state in it are this run's own; all of it
# is stopped and removed at the end.
work=$(mktemp -d)
export GLM_STATE_DIR=$work/state HF_HOME=$work/none
unset HF_HUB_CACHE
spec=$work/demo.yaml
sed -e "s|checkpoint: ./exl3 *|checkpoint: $PWD/clusters/demo/exl3 |" \
    -e 's|listen: 127.0.0.1:.*|listen: 127.0.0.1:0|' "clusters/demo/${demo:-demo.yaml}" >"$spec"

# shellcheck disable=SC2154 # build: the sourcing script's
finish() {
    for lane in tp1 tp2 tp3 tp4; do
        "$build/glmctl" stop "$spec" --lane "$lane" --yes >/dev/null 2>&1 || true
    done
    rm -rf "$work"
}
trap finish EXIT
