#!/usr/bin/env bash
# share.sh [NAME=VALUE…] COMMAND…: runs tests. What takes long takes turns with the commit (TEST_COMMIT, by default that of the
# repository); what was left out is said in the end.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
TEST_COMMIT=${TEST_COMMIT:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}
TEST_LEFT_OUT=$(mktemp)
export TEST_COMMIT TEST_LEFT_OUT
trap 'rm -f "$TEST_LEFT_OUT"' EXIT
rc=0
env "$@" || rc=$?
if [ -s "$TEST_LEFT_OUT" ]; then
  echo "left out at commit ${TEST_COMMIT:0:7}, $(wc -l <"$TEST_LEFT_OUT") of what takes long (ALL=1 plays all):"
  paste -sd '|' "$TEST_LEFT_OUT" | sed 's/|/, /g' | fold -s -w 140 | sed 's/^/  /'
fi
exit $rc
