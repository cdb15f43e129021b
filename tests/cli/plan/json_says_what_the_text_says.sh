#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
for file in clusters/*.yaml clusters/demo/demo.yaml; do
    run 0 glmctl plan "$file"
    cp "$out" "$work/$(basename "$file").txt"
    run 0 glmctl plan "$file" -o json
    [ ! -s "$err" ] || die "$file: JSON and prose were mixed"
    cp "$out" "$work/$(basename "$file").json"
done
python3 -IS - "$work"/*.json >"$out" 2>"$err" <<'END' || die "text and JSON differ"
import json, re, sys
for path in sys.argv[1:]:
    text = open(path.replace(".json", ".txt")).read()
    d = json.load(open(path))
    plan = d["plan"]
    assert list(d) == ["format_version", "diagnostics", "changes", "plan"], list(d)
    assert d["changes"] == {"action": "start", "state": "stopped", "differences": []}, d["changes"]
    assert re.search(r"lane %s.*: TP %d, served as %s on %s:%d\n" % (
        plan["lane"], plan["tp"], re.escape(plan["model"]["served_name"]), plan["listen"]["host"],
        plan["listen"]["port"]), text), path
    assert "pool      %d tokens" % plan["pool_tokens"] in text, path
    assert "kernels   %d to build" % plan["kernels"] in text, path
    assert len(plan["ranks"]) == plan["tp"], path
    absent = [x["id"] for x in d["diagnostics"]]
    assert ("checkpoint.absent" in absent) == ("demo" not in path), absent
END
