# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For the shell tests, which source it: run a command and look at what it did. tests/run gives
# $GLM_BUILD, a $GLM_STATE_DIR of the test's own and the shared $GLM_CACHE_DIR; lanes that a test
# leaves running are ended. Lanes listen on port 0: tests never meet each other or what runs here.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
: "${GLM_BUILD:?}" "${GLM_STATE_DIR:?}"
work=$(mktemp -d)
out=$work/out err=$work/err rc=0
export HF_HOME=/nonexistent TERM=dumb LC_ALL=C.UTF-8
export GLM_CUDA_DRIVER=/nonexistent/libcuda.so.1 # what GPUs this machine has changes no test
unset HF_HUB_CACHE GLM_LANE GLM_GLMD NO_COLOR FAKE_CUDA

# As installed: found in PATH, so that messages call it by its name.
mkdir "$work/bin"
ln -s "$(realpath "$GLM_BUILD/glmctl")" "$work/bin/glmctl"
PATH=$work/bin:$PATH

# Ended, whether or not somebody has waited for it.
is_gone() {
    ! grep -q '^[0-9]* (.*) [^ZX]' "/proc/$1/stat" 2>/dev/null
}

# Every head whose lock file names a living glmd.
heads() {
    cat "$GLM_STATE_DIR"/*/*/lock 2>/dev/null | while read -r pid; do
        if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = glmd ] && ! is_gone "$pid"; then
            echo "$pid"
        fi
    done
}

# What a sanitizer found, in the streams of a command or in the logs of a rank.
finding='runtime error:|(ERROR|WARNING): [A-Za-z]*Sanitizer'

finish() {
    local status=$?
    if [ "$status" -eq 0 ] && grep -rE "$finding" "$GLM_STATE_DIR" 2>/dev/null >&2; then
        status=1
    fi
    for pid in $(heads); do
        kill -KILL "$pid" 2>/dev/null
    done
    rm -rf "$work" "$GLM_STATE_DIR"
    exit "$status"
}
trap finish EXIT

# die WORDS: the test failed; shows the last command's streams.
die() {
    echo "FAILED: $*"
    echo "--- last exit status $rc, standard output:"
    cat "$out"
    echo "--- standard error:"
    cat "$err"
    exit 1
} >&2

skip() {
    echo "$*" >&2
    exit 77
}

# run WANTED_STATUS COMMAND...: its streams are in $out and $err.
run() {
    local wanted=$1
    shift
    "$@" >"$out" 2>"$err"
    rc=$?
    ! grep -qE "$finding" "$err" || die "a finding in '$*'"
    [ "$rc" -eq "$wanted" ] || die "'$*' exited with $rc, wanted $wanted"
}

says() {
    grep -qE -- "$2" "$1" || die "nothing matches '$2' on $(basename "$1")"
}

says_not() {
    ! grep -qE -- "$2" "$1" || die "something matches '$2' on $(basename "$1")"
}

# json FILE EXPRESSION: prints a Python expression of the document d.
json() {
    python3 -IS -c 'import json, sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2"
}

# demo_spec FILE [SED]...: clusters/demo/demo.yaml with its checkpoint and any free ports.
demo_spec() {
    local file=$1 edits=()
    shift
    for edit in "$@"; do
        edits+=(-e "$edit")
    done
    sed -e "s|checkpoint: ./exl3 *|checkpoint: $PWD/clusters/demo/exl3 |" \
        -e 's|listen: 127.0.0.1:.*|listen: 127.0.0.1:0|' "${edits[@]}" clusters/demo/demo.yaml >"$file"
}

# A machine with the GPU without a GPU: cuda:0 of 1 GiB. FAKE_CUDA=capability=121 makes it a GB10.
fake_gpu() {
    export GLM_CUDA_DRIVER=$GLM_BUILD/tests/fake/cuda_driver.so GLM_NVRTC=$GLM_BUILD/tests/fake/nvrtc.so
    [ -f "$GLM_CUDA_DRIVER" ] || die "there is no $GLM_CUDA_DRIVER: make tests"
}

# wait_for SECONDS WORDS COMMAND...: until the command succeeds.
wait_for() {
    local until=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt "$until" ] || die "waited too long for $what"
        sleep 0.05
    done
}

# ask URL: a completion; prints its HTTP status, body in $work/answer.
ask() {
    curl -s -m 60 -o "$work/answer" -w '%{http_code}' "$1/v1/completions" \
        -H 'Content-Type: application/json' -d '{"prompt": "Count from 1 to 5.", "max_tokens": 8}'
}
