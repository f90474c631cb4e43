#!/usr/bin/env bash
# step.sh NAME COMMAND...: runs a command under a headline, and says how it went and how long it took.
set -uo pipefail
name=$1
shift
echo "== $name"
SECONDS=0
"$@"
rc=$?
if [ $rc = 0 ]; then echo "== $name: ok, $SECONDS s"; else echo "== $name: FAILED ($rc) after $SECONDS s" >&2; fi
exit $rc
