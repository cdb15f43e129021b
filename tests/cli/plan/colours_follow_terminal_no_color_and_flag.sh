#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../lib.sh"
python3 -c "import pty; pty.openpty()" 2>/dev/null || skip "no pseudo-terminals here"
colour=$(printf '\033')
# on_terminal COMMAND...: its standard error is a terminal.
on_terminal() {
    python3 -c '
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.execvp(sys.argv[1], sys.argv[1:])
data = b""
try:
    while True:
        piece = os.read(fd, 65536)
        if not piece:
            break
        data += piece
except OSError:
    pass
sys.stdout.buffer.write(data)
' "$@"
}
printf 'kind: Cluster\nname: [\n' >"$work/bad.yaml"
plan=("$GLM_BUILD/glmctl" plan "$work/bad.yaml")
has() {
    grep -q "$colour" || die "$1: no colour"
}
has_not() {
    ! grep -q "$colour" || die "$1: colour"
}
TERM=xterm on_terminal "${plan[@]}" | has 'on a terminal'
TERM=xterm NO_COLOR='' on_terminal "${plan[@]}" | has 'with NO_COLOR empty'
TERM=xterm NO_COLOR=1 on_terminal "${plan[@]}" | has_not 'with NO_COLOR'
TERM=dumb on_terminal "${plan[@]}" | has_not 'on a dumb terminal'
TERM=xterm on_terminal "${plan[@]}" --color=never | has_not 'with --color=never'
NO_COLOR=1 "${plan[@]}" --color=always 2>&1 >/dev/null | has 'with --color=always'
TERM=xterm "${plan[@]}" 2>&1 >/dev/null | has_not 'into a pipe'
TERM=xterm on_terminal "$GLM_BUILD/glmctl" explain nonsense | has 'an error on a terminal'
