#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
# Both lanes are on one node, which has room for one of them.
cat >"$work/two.yaml" <<END
apiVersion: glmctl/v1
kind: Cluster
name: two
model: { checkpoint: $PWD/clusters/demo/exl3 }
nodes:
  - { name: cpu0, memory: 400MiB }
lanes:
  - { name: a, ranks: [cpu0], listen: "127.0.0.1:0", window: 8192, formats: { kv: fp32 } }
  - { name: b, ranks: [cpu0], listen: "127.0.0.1:0", window: 8192, formats: { kv: fp32 } }
END
spec=$work/two.yaml
run 0 glmctl apply "$spec" --lane a --yes
pid=$(heads)
run 1 glmctl apply "$spec" --lane b --yes
says "$err" "rank 0 of lane 'b' needs 0\\.[0-9]+ GiB on node 'cpu0', which has 0\\.39 GiB; lane 'a' holds 0\\.[0-9]+ GiB of it"
says "$err" "hint: glmctl apply $spec --lane b --replace a"
[ "$(heads)" = "$pid" ] || die "what runs was touched"
run 1 glmctl apply "$spec" --lane b --replace b --yes
says "$err" "lane 'b' cannot replace itself"
run 1 glmctl apply "$spec" --lane b --replace c --yes
says "$err" "there is no lane 'c'"
run 0 glmctl apply "$spec" --lane b --replace a --yes
is_gone "$pid" || die "the replaced lane lives"
run 3 glmctl status "$spec" --lane a
says "$out" '^two/a: not running$'
says "$out" '^  also: lane b is live http'
# What the machine does not have is refused whatever the spec declares, before anything is laid out.
sed -i -e 's/memory: 400MiB/memory: 8TiB, reserve: 4TiB/' -e 's/name: two/name: huge/' "$spec"
run 1 glmctl apply "$spec" --lane a --yes
says "$err" "cannot fit rank 0 of lane 'a' on host 'local': together they need 0\\.[0-9]+ GiB and reserve 4096\\.00 \\(their nodes declare 8192\\.00\\), it has [0-9.]+ GiB"
