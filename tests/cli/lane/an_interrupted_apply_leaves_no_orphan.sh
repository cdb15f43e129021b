#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
demo_spec "$work/demo.yaml"
spec=$work/demo.yaml
# interrupted COMMAND...: it gets SIGINT once "$work/started" is there.
interrupted() {
    python3 -c '
import os, signal, subprocess, sys, time
p = subprocess.Popen(sys.argv[2:], preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
until = time.time() + 30
while not os.path.exists(sys.argv[1]) and time.time() < until and p.poll() is None:
    time.sleep(0.01)
p.send_signal(signal.SIGINT)
sys.exit(p.wait())
' "$work/started" "$@"
}
children() {
    grep -lzE "^$work/(cc|glmd)" /proc/[0-9]*/cmdline 2>/dev/null | grep -q .
}

# While kernels are compiled: the compilers end, no half entry is left.
cat >"$work/cc" <<END
#!/bin/sh
touch $work/started
[ "\$1" = --version ] || sleep 0.3
exec cc "\$@"
END
chmod +x "$work/cc"
GLM_CACHE_DIR=$work/cache GLM_HOST_CC=$work/cc run 130 interrupted glmctl apply "$spec" --yes
says "$err" 'interrupted by SIGINT while building kernels'
says "$err" 'nothing that runs was touched'
! children || die "a compiler is left"
[ -z "$(find "$work/cache" -name '.stage*')" ] || die "a half entry is left"
run 3 glmctl status "$spec"

# While the lane loads, by a head that never answers nor heeds SIGTERM at once.
rm "$work/started"
cat >"$work/glmd" <<END
#!/bin/sh
trap 'exit 0' TERM
touch $work/started
while :; do sleep 0.1; done
END
chmod +x "$work/glmd"
GLM_GLMD=$work/glmd run 130 interrupted glmctl apply "$spec" --yes
says "$err" 'interrupted by SIGINT while the lane was loading'
says "$err" "lane tp1 is stopped; next: glmctl apply $spec --lane tp1"
! children || die "the head is left"

# It can be run again.
run 0 glmctl apply "$spec" --yes
run 0 glmctl stop "$spec" --yes
