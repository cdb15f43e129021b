#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
run 0 glmctl explain
grep '^[a-zA-Z]' "$out" >"$work/text"
run 0 glmctl explain -o json
json "$out" '"\n".join(f["field"] for f in d["fields"])' >"$work/json"
cmp "$work/text" "$work/json" || die "text and JSON list different fields"
[ "$(json "$out" 'd["format_version"]')" = 1 ] || die "no format_version"
run 0 glmctl explain lanes.formats.kv -o json
[ "$(json "$out" '[f["words"] for f in d["fields"]]')" = "[['fp32', 'bf16', 'fp8']]" ] || die "wrong words"
run 1 glmctl explain nonsense -o json
[ "$(json "$out" 'd["error"]["message"]')" = "there is no field 'nonsense'" ] || die "wrong error"
[ ! -s "$err" ] || die "JSON and prose were mixed"
