#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
demo_spec "$work/demo.yaml"
spec=$work/demo.yaml
run 3 glmctl status "$spec"
says "$out" '^demo/tp1: not running$'
says "$out" "next: glmctl apply $spec --lane tp1"
run 0 glmctl stop "$spec" --yes
says "$err" 'lane tp1 of demo is not running'
run 1 glmctl logs "$spec"
says "$err" "there are no logs in '$GLM_STATE_DIR/demo/tp1/logs'"

exec 9>"$work/mine" # the lane must not keep what is open here
run 0 glmctl apply "$spec" --yes
if readlink "/proc/$(heads)/fd/"* | grep -Fx "$work/mine"; then
    die "the head holds our file"
fi
says "$out" '^changes   \+ lane tp1 is not running: apply starts 1 rank$'
says "$out" '^pico is LIVE on lane tp1: 1 rank, '
url=$(tail -n 1 "$out")
[[ $url =~ ^http://127\.0\.0\.1:[0-9]+$ ]] || die "the last line is no URL: $url"
pid=$(heads)
[ "$(ask "$url")" = 200 ] || die "the lane does not answer: $(cat "$work/answer")"

# A second apply is a no-op that prints the URL.
run 0 glmctl apply "$spec" --yes
[ "$(cat "$out")" = "$url" ] || die "standard output is not the URL alone"
says "$err" 'runs exactly this: nothing to do'
run 0 glmctl apply "$spec" -o json # needs no --yes: nothing is asked
[ "$(json "$out" 'd["format_version"], d["changed"], d["url"]')" = "(1, False, '$url')" ] || die "wrong JSON"
[ "$(heads)" = "$pid" ] || die "the lane was started again"
run 0 glmctl plan "$spec" --detailed-exitcode
says "$out" '^changes   none: lane tp1 is live with exactly this$'
run 0 glmctl plan "$spec" --refresh -o json
[ "$(json "$out" 'd["changes"]["action"], d["changes"]["state"]')" = "('none', 'live')" ] || die "wrong changes"

run 0 glmctl status "$spec"
says "$out" "^demo/tp1: live, up [0-9]+ s, $url$"
says "$out" "^  0     $pid +live +cpu "
run 0 glmctl status "$spec" -o json
[ "$(json "$out" 'd["format_version"], d["state"], d["url"], [(r["pid"], r["device"]) for r in d["ranks"]], d["stats"]["requests_total"]')" = \
    "(1, 'live', '$url', [($pid, 'cpu')], 2)" ] || die "wrong JSON"
run 0 glmctl logs "$spec"
says "$out" "^rank 0 \| .* live url=$url"
run 0 glmctl logs "$spec" 0 -n 1
[ "$(wc -l <"$out")" = 1 ] || die "not one line"
says_not "$out" '^rank 0'
run 1 glmctl logs "$spec" 5
says "$err" 'there is no log of rank 5'
run 64 glmctl logs "$spec" five

# restart starts it anew though nothing differs; the spec's comment does not matter.
echo '# more' >>"$spec"
run 0 glmctl plan "$spec" --detailed-exitcode
run 0 glmctl restart "$spec" --yes
[ "$(heads)" != "$pid" ] || die "restart did not start it again"
url=$(tail -n 1 "$out")

run 0 glmctl stop "$spec" --yes -o json
[ "$(json "$out" 'd["format_version"], d["lane"], d["stopped"]')" = "(1, 'tp1', True)" ] || die "wrong JSON"
[ "$(heads)" = '' ] || die "a head is left"
# Its port is free at once.
python3 -c 'import socket, sys; socket.create_server(("127.0.0.1", int(sys.argv[1])))' "${url##*:}" ||
    die "the port is not free"
run 3 glmctl status "$spec" -o json
[ "$(json "$out" 'd["state"], d["ranks"], d["next"]')" = "('stopped', [], 'glmctl apply $spec --lane tp1')" ] || die "wrong JSON"
