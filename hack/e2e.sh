#!/usr/bin/env bash
# e2e.sh FLAG…: runs the end-to-end tests, with more flags of `go test`. Those of the lab and those of lockkeeper run side by side, and of
# each the packages: most wait most of the time, but for those with a Ceph, of which at most $LABS are up at a time. With RUN in the
# environment only what it names, and none of the lab's own.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
labs=${LABS:-2}
LAB_TURNS=$(mktemp -d)
export LAB_TURNS
for turn in $(seq "$labs"); do touch "$LAB_TURNS/$turn"; done
ofTheLab=$(mktemp)
lab=
finish() {
  if [ -n "$lab" ]; then kill -- -"$lab" 2>/dev/null; wait "$lab"; fi
  rm -rf "$LAB_TURNS" "$ofTheLab"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

run=()
if [ -n "${RUN:-}" ]; then
  run=(-run "$RUN" -v)
else
  # In a group of its own, so that all of it ends when this does.
  set -m
  (cd lab && CGO_ENABLED=0 exec env -u LAB_CEPH go test "$@" -timeout 30m ./test) >"$ofTheLab" 2>&1 &
  lab=$!
  set +m
fi
rc=0
go test "$@" ./test/... -count=1 -p 2 -timeout 90m -parallel "$labs" "${run[@]}" || rc=$?
if [ -n "$lab" ]; then
  wait "$lab" || rc=$?
  lab=
  cat "$ofTheLab"
fi
exit "$rc"
