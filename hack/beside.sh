#!/usr/bin/env bash
# beside.sh NAME BACKGROUND NAME2 COMMAND...: runs two steps at once. The first one, a command line, has the processors only while the
# second one leaves them idle: labs wait most of the time, for reports and timers of Ceph. What it prints comes in the end, but for the
# tests that fail, which are named at once.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
name=$1 background=$2
shift 2
log=$(mktemp)

# A session of its own, since Linux shares the processors among sessions first, and looks at priorities within each. Where it cannot be told
# that this session is worth less, nice is all there is.
setsid nice -n 19 bash -c 'echo 19 2>/dev/null >/proc/self/autogroup; exec "$@"' - hack/step.sh "$name" bash -c "$background" >"$log" 2>&1 &
behind=$!
tail -n +1 -f --pid=$$ "$log" | grep --line-buffered -E '^(--- )?FAIL|^== .*FAILED' | sed -u "s/^/$name: /" >&2 &
telling=$!
# shellcheck disable=SC2317 # called by the trap
finish() {
  kill -- -"$behind" 2>/dev/null
  kill "$telling" 2>/dev/null
  rm -f "$log"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "== $name: beside the $1, told in the end"
rc=0
hack/step.sh "$@" || rc=$?
wait "$behind" || rc=$?
cat "$log"
exit "$rc"
