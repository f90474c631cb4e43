#!/usr/bin/env bash
# e2e.sh FLAG…: runs the end-to-end tests, with more flags of `go test`. The packages that need cgo ($WITH_CGO), in which most of the labs
# are, have at most $LABS labs with a Ceph at a time. Beside them the lab's own tests and then the other packages go one after the other; and
# until they have ended, they count for one of these labs. More of them at once end no sooner, since the processors are busy already, and what
# runs in seconds takes minutes, which is more than a test may wait for.
# With RUN in the environment only what it names, and none of the lab's own.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
labs=${LABS:-2}
patience=90m
if [ -n "${TEST_ALL:-}" ]; then patience=5h; fi
read -ra with_cgo <<<"${WITH_CGO:-./test/...}"
LAB_TURNS=$(mktemp -d)
export LAB_TURNS
for turn in $(seq $((labs > 1 ? labs - 1 : 1))); do touch "$LAB_TURNS/$turn"; done
log=$(mktemp)
first= beside= # leaders of groups
finish() {
  for pid in $first $beside; do kill -- -"$pid" 2>/dev/null; done
  wait
  rm -rf "$LAB_TURNS" "$log"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

the_lab() { (cd lab && CGO_ENABLED=0 exec env -u LAB_CEPH -u LAB_TURNS go test "$@" -timeout "$patience" ./test); }
the_others() {
  local all first_ones others # that a list cannot be had is a failure, and not that there are none
  all=$(CGO_ENABLED=0 go list ./test/...) || return 1
  first_ones=$(go list "${with_cgo[@]}") || return 1
  others=$(grep -vxF "$first_ones" <<<"$all") || return 0
  # shellcheck disable=SC2086 # one word for each package
  CGO_ENABLED=0 env -u LAB_TURNS go test "$@" $others -count=1 -p 1 -timeout "$patience" "${run[@]}"
}
# one_by_one FLAG…: what goes beside the packages that need cgo.
one_by_one() {
  local rc=0
  if [ -z "${RUN:-}" ]; then the_lab "$@" || rc=$?; fi
  the_others "$@" || rc=$?
  touch "$LAB_TURNS/$labs"
  return "$rc"
}

run=()
if [ -n "${RUN:-}" ]; then run=(-run "$RUN" -v); fi
set -m # each in a group of its own, so that all of it ends when this does
one_by_one "$@" >"$log" 2>&1 &
beside=$!
go test "$@" "${with_cgo[@]}" -count=1 -p 2 -timeout "$patience" -parallel "$labs" "${run[@]}" &
first=$!
set +m
rc=0
wait "$first" || rc=$? # and not in the foreground, where nobody could end this before it has ended
first=
wait "$beside" || rc=$?
beside=
cat "$log"
exit "$rc"
