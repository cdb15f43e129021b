#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# With -o json standard output is one object with a format_version, also when a command fails, and
# nothing else is printed anywhere.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
spec=clusters/demo/demo.yaml
n=0
# try KEY STATUS COMMAND...: its object has that key.
try() {
    local key=$1
    shift
    run "$@" -o json
    [ ! -s "$err" ] || die "'$*' mixed JSON and prose"
    n=$((n + 1))
    cp "$out" "$work/$n.$key.json"
}
try host_target 0 glmctl version
try fields 0 glmctl explain name
try plan 0 glmctl plan "$spec"
try kernels 0 glmctl kernels dump "$spec" --kernel embed
try ranks 3 glmctl status "$spec"
try stopped 0 glmctl stop "$spec" --yes
# Failures.
try error 1 glmctl logs "$spec"
try error 1 glmctl bench "$spec"
try error 1 glmctl explain nonsense
echo 'kind: [' >"$work/bad.yaml"
for command in plan apply restart 'kernels dump' status stop logs bench; do
    # shellcheck disable=SC2086
    try error 1 glmctl $command "$work/none.yaml"
    # shellcheck disable=SC2086
    try diagnostics 1 glmctl $command "$work/bad.yaml"
done
python3 -IS - "$work"/*.json >"$out" 2>"$err" <<'END' || die "not what was promised"
import json, sys
for path in sys.argv[1:]:
    key = path.split(".")[-2]
    d = json.load(open(path))
    assert list(d)[0] == "format_version" and d["format_version"] == 1, (path, d)
    assert key in d, (path, d)
    if key == "diagnostics":
        assert d[key][0]["line"] > 0 and d[key][0]["file"].endswith("bad.yaml"), (path, d)
    if key == "error":
        assert d[key]["message"] and set(d[key]) == {"status", "message", "hint"}, (path, d)
assert len(sys.argv) == 26, len(sys.argv)
END
