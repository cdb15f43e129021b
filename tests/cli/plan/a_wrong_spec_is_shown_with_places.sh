#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
cd "$work" || exit 1
cat >bad.yaml <<END
apiVersion: glmctl/v1
kind: Cluster
name: bad
model: { checkpoint: synthetic:small8 }
nodes:
  - { name: a, memory: 2GiB }
  - { name: b, memroy: 2GiB }
lanes:
  - name: one
    ranks: [a, c]
    streams: 99
    formats: { kv: fp16 }
END
run 1 glmctl plan bad.yaml
[ ! -s "$out" ] || die "diagnostics on standard output"
cat "$err"
run 1 glmctl apply bad.yaml --yes
run 1 glmctl plan bad.yaml -o json
[ ! -s "$err" ] || die "JSON and prose were mixed"
json "$out" '"\n".join("%s:%d:%d %s" % (x["file"], x["line"], x["column"], x["id"]) for x in d["diagnostics"])'
