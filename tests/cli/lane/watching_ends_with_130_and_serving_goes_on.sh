#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
demo_spec "$work/demo.yaml"
spec=$work/demo.yaml
run 0 glmctl apply "$spec" --yes
url=$(tail -n 1 "$out") pid=$(heads)
# interrupt COMMAND...: Ctrl-C once it has printed something. A script's background commands ignore
# SIGINT, so a child of Python's runs it.
interrupt() {
    python3 -c '
import signal, subprocess, sys
p = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE,
                     preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
first = p.stdout.readline().decode()
p.send_signal(signal.SIGINT)
p.wait()
print(first, end="")
sys.exit(p.returncode if p.returncode >= 0 else 100)
' "$@"
}
run 130 interrupt "$GLM_BUILD/glmctl" status "$spec" --watch
says "$out" '^demo/tp1: live'
run 130 interrupt "$GLM_BUILD/glmctl" logs "$spec" -f
says "$out" '^rank 0 \| '
run 130 interrupt "$GLM_BUILD/glmctl" logs "$spec" -f -o json
[ "$(json "$out" 'd["format_version"], d["rank"]')" = '(1, 0)' ] || die "wrong JSON"
[ "$(heads)" = "$pid" ] || die "watching stopped serving"
[ "$(ask "$url")" = 200 ] || die "the lane does not answer"
# logs -f shows lines as they come, and whole ones.
"$GLM_BUILD/glmctl" logs "$spec" -f -n 1 >"$work/follow" &
follower=$!
wait_for 5 'the last line' test -s "$work/follow"
printf 'half' >>"$GLM_STATE_DIR/demo/tp1/logs/rank0.log"
sleep 0.5
says_not "$work/follow" half
echo ' and half' >>"$GLM_STATE_DIR/demo/tp1/logs/rank0.log"
wait_for 5 'the whole line' grep -q '^rank 0 | half and half$' "$work/follow"
run 0 glmctl restart "$spec" --yes
wait_for 5 'the lines of the new head' grep -q "live url=$(tail -n 1 "$out")" "$work/follow"
kill "$follower"
run 0 glmctl stop "$spec" --yes
