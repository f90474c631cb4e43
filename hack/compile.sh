#!/usr/bin/env bash
# compile.sh WHAT COLD MODULE PACKAGES -- COMMAND...
# Runs a command that builds WHAT out of PACKAGES (words, or "tool") of the Go module in the folder MODULE, and says what it is
# about to do and how far it is. COLD is how long that takes when nothing is compiled yet. The build flags that matter to both come
# in through GOFLAGS and CGO_ENABLED.
set -euo pipefail
what=$1 cold=$2 module=$3 packages=$4
shift 5

GOFLAGS=$(go env GOFLAGS)
export GOFLAGS
# What the cache does not hold yet has to be compiled; the rest only has to be linked.
# shellcheck disable=SC2086 # packages is a list of words
total=$(go -C "$module" list -deps -f '{{if .Stale}}{{.ImportPath}}{{end}}' $packages 2>/dev/null | grep -c . || true)
if [ "$total" -gt 20 ]; then
  echo "build $what: $total packages to compile ($cold when none is)"
else
  echo "build $what"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
GOFLAGS="$GOFLAGS -v" "$@" 2>"$log" &
command=$!
trap 'kill "$command" 2>/dev/null; wait "$command" 2>/dev/null; rm -f "$log"; exit 130' INT TERM
SECONDS=0
said=0
while kill -0 "$command" 2>/dev/null; do
  sleep 0.2
  if [ $((SECONDS - said)) -ge 15 ]; then
    said=$SECONDS
    compiled=$(grep -cE '^[A-Za-z0-9./_~-]+$' "$log" || true)
    if [ "$compiled" -lt "$total" ]; then now="$compiled of $total packages"; else now=linking; fi
    echo "build $what: $now after $SECONDS s"
  fi
done
rc=0
wait "$command" || rc=$?
# -v adds one line for each package, and "go: downloading": all else is for the reader.
grep -vE '^([A-Za-z0-9./_~-]+|go: downloading .*)$' "$log" >&2 || true
if [ "$rc" = 0 ] && [ "$SECONDS" -gt 5 ]; then echo "build $what: done in $SECONDS s"; fi
exit "$rc"
