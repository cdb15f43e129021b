#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
python3 -c '
import socket, sys, time
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
time.sleep(60)
' >"$work/port" &
holder=$!
wait_for 10 'a port' test -s "$work/port"
port=$(cat "$work/port")
demo_spec "$work/demo.yaml" "s/listen: 127.0.0.1:0/listen: 127.0.0.1:$port/"
spec=$work/demo.yaml
run 1 glmctl apply "$spec" --yes
says "$err" "cannot listen on '127.0.0.1:$port': Address already in use by process $holder \\(python3\\)"
says "$err" "hint: end what is there, or set lanes\\[\\].listen of lane 'tp1'"
[ ! -e "$GLM_STATE_DIR/demo/tp1/launch.json" ] || die "something was written"
kill "$holder"
wait "$holder" 2>/dev/null
# A lane of the same cluster that has it is named, and can be replaced.
run 0 glmctl apply "$spec" --yes
pid=$(heads)
run 1 glmctl apply "$spec" --lane tp2 --yes
says "$err" "lane 'tp2' listens on '127.0.0.1:$port', where lane 'tp1' of cluster 'demo' is"
says "$err" "hint: glmctl apply $spec --lane tp2 --replace tp1"
[ "$(heads)" = "$pid" ] || die "what runs was touched"
run 0 glmctl apply "$spec" --lane tp2 --replace tp1 --yes
says "$err" 'lane tp1 stopped: it is replaced'
is_gone "$pid" || die "the replaced lane lives"
[ "$(tail -n 1 "$out")" = "http://127.0.0.1:$port" ] || die "another address"
# Another address than this machine's.
demo_spec "$work/other.yaml" 's/listen: 127.0.0.1:0/listen: 192.0.2.1:8881/' 's/name: demo/name: other/'
run 1 glmctl apply "$work/other.yaml" --yes
says "$err" "cannot listen on '192.0.2.1:8881': Cannot assign requested address"
