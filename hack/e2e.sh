#!/usr/bin/env bash
# e2e.sh FLAG…: runs the end-to-end tests, with more flags of `go test`. Three of them side by side: the packages that need cgo ($WITH_CGO),
# in which most of the labs are, the other ones, and those of the lab itself. Most wait most of the time, but for those with a Ceph, of which
# at most $LABS are up at a time. The other packages go one after the other: beside two labs more than one API server that starts is starved.
# With RUN in the environment only what it names, and none of the lab's own.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
labs=${LABS:-2}
patience=90m
if [ -n "${TEST_ALL:-}" ]; then patience=5h; fi
read -ra with_cgo <<<"${WITH_CGO:-./test/...}"
LAB_TURNS=$(mktemp -d)
export LAB_TURNS
for turn in $(seq "$labs"); do touch "$LAB_TURNS/$turn"; done
logs=$(mktemp -d)
beside=() # leaders of groups
first=
finish() {
  for pid in $first "${beside[@]}"; do kill -- -"$pid" 2>/dev/null; done
  wait
  rm -rf "$LAB_TURNS" "$logs"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# beside COMMAND…: runs it in a group of its own, so that all of it ends when this does. What it prints comes in the end.
beside() {
  set -m
  "$@" >"$logs/${#beside[@]}" 2>&1 &
  beside+=($!)
  set +m
}
the_lab() { cd lab && CGO_ENABLED=0 exec env -u LAB_CEPH go test "$@" -timeout "$patience" ./test; }
the_others() {
  local all first_ones others # that a list cannot be had is a failure, and not that there are none
  all=$(CGO_ENABLED=0 go list ./test/...) || exit 1
  first_ones=$(go list "${with_cgo[@]}") || exit 1
  others=$(grep -vxF "$first_ones" <<<"$all") || exit 0
  # shellcheck disable=SC2086 # one word for each package
  CGO_ENABLED=0 exec go test "$@" $others -count=1 -p 1 -timeout "$patience" "${run[@]}"
}

run=()
if [ -n "${RUN:-}" ]; then run=(-run "$RUN" -v); else beside the_lab "$@"; fi
beside the_others "$@"
set -m
go test "$@" "${with_cgo[@]}" -count=1 -p 2 -timeout "$patience" -parallel "$labs" "${run[@]}" &
first=$!
set +m
rc=0
wait "$first" || rc=$? # and not in the foreground, where nobody could end this before it has ended
first=
for i in "${!beside[@]}"; do
  wait "${beside[$i]}" || rc=$?
  cat "$logs/$i"
done
beside=()
exit "$rc"
