#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
demo_spec "$work/demo.yaml"
spec=$work/demo.yaml
cat >"$work/glmd" <<END
#!/bin/sh
touch $work/started
while :; do sleep 0.1; done
END
chmod +x "$work/glmd"
GLM_GLMD=$work/glmd "$GLM_BUILD/glmctl" apply "$spec" --yes >"$work/first" 2>&1 &
first=$!
wait_for 60 'the first apply to start its head' test -e "$work/started"
run 1 glmctl apply "$spec" --yes
says "$err" "another glmctl works on this lane: process $first holds"
says "$err" "hint: wait for it, or end it: kill -INT $first"
run 1 glmctl restart "$spec" --yes
says "$err" "process $first holds"
run 1 glmctl stop "$spec" --yes
says "$err" "process $first holds"
kill -0 "$first" || die "the first apply was disturbed"
kill -TERM "$first"
wait "$first"
rc=$?
[ $rc -eq 143 ] || die "SIGTERM exits $rc"
# The lock goes with its process, however that ends.
run 0 glmctl stop "$spec" --yes
