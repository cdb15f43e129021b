#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
demo_spec "$work/demo.yaml"
spec=$work/demo.yaml
run 64 glmctl apply "$spec"
says "$err" "cannot ask 'start lane tp1 of demo\\?' without a terminal"
run 64 glmctl stop "$spec"
says "$err" 'hint: say --yes'
run 64 glmctl restart "$spec"

# A state folder that cannot be made or written; root may write anywhere but into a file.
touch "$work/file"
GLM_STATE_DIR=$work/file run 1 glmctl apply "$spec" --yes
says "$err" "$work/file"
says "$err" 'hint: GLM_STATE_DIR names another state folder'
if [ "$(id -u)" -ne 0 ]; then
    mkdir "$work/closed"
    chmod 500 "$work/closed"
    GLM_STATE_DIR=$work/closed run 1 glmctl apply "$spec" --yes
    says "$err" 'Permission denied'
fi

# No glmd, one that ends at once, one that is no program.
GLM_GLMD=$work/none run 1 glmctl apply "$spec" --yes
says "$err" "cannot run '$work/none': No such file or directory"
GLM_GLMD=/bin/false run 1 glmctl apply "$spec" --yes
says "$err" "lane 'tp1' did not come up: its head ended with status 1"
says "$err" "hint: glmctl logs $spec --lane tp1"

# A compiler that fails, or is not there.
GLM_CACHE_DIR=$work/cache GLM_HOST_CC=$work/nocc run 1 glmctl apply "$spec" --yes
says "$err" 'install a C compiler'
says "$err" 'nothing that runs was touched'

# A checkpoint that is not on this machine can be planned only; so can other machines.
run 1 glmctl apply clusters/tp4-ring.yaml --yes
says "$err" "checkpoint 'Mia-AiLab/.*' is not on this machine"
cat >"$work/remote.yaml" <<END
apiVersion: glmctl/v1
kind: Cluster
name: remote
model: { checkpoint: $PWD/clusters/demo/exl3 }
nodes: [{ name: cpu0, host: spark1, memory: 2GiB }]
lanes: [{ name: tp1, ranks: [cpu0], listen: "127.0.0.1:0" }]
END
run 1 glmctl apply "$work/remote.yaml" --yes
says "$err" "rank 0 is node 'cpu0' on 'spark1'"
run 3 glmctl status "$spec"
