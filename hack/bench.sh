#!/usr/bin/env bash
# bench.sh [--quick|--guard]: measures lockkeeper in a lab of its own and prints one line "name value unit" for each figure. What happens
# meanwhile goes to standard error. It takes about half an hour. EVENTS=n sets how many OSDs are stopped, one after the other (100),
# OPENINGS=n how many nodes are cordoned (20), BUSY=n how many OSDs are stopped while the keeper tells JOBS=n jobs (20, 500),
# DRAINS=n how many nodes are drained (6), IDLE=3m for how long lockkeeper at rest is watched, UNWATCHED=60s for how long nobody
# watches while everything is evicted, SCALE_EVENTS=n how many OSDs of a thousand are stopped (25), SCALE_BUSY=n while the keeper is busy (5).
# OSDS_PER_NODE=n has n OSDs on each of the six nodes (1), LAB_CEPH the release.
# --quick takes a few of each, which tells whether it works, and not how fast it is. --guard measures the guard of deletions alone.
set -euo pipefail
programs=(bench scale drains evictions)
case ${1-} in
  '') ;;
  --guard) programs=(evictions) ;;
  --quick)
    : "${EVENTS:=4}" "${OPENINGS:=3}" "${BUSY:=2}" "${DRAINS:=2}" "${IDLE:=1m}" "${UNWATCHED:=15s}" "${SCALE_EVENTS:=3}" "${SCALE_BUSY:=1}" ;;
  *) echo "bench.sh: $1: allowed are --quick and --guard, or nothing" >&2; exit 2 ;;
esac
# shellcheck source=hack/world.sh
. "$(dirname "${BASH_SOURCE[0]}")/world.sh"
for program in "${programs[@]}"; do
  part=./test/bench/$program
  [ $program != bench ] || part=./test/bench
  go -C "$top" build -o "$work/$program" "$part"
done
world_at_rest() {
  enter_world "${BENCH_NAME:-bench}" --osds-per-node "${OSDS_PER_NODE:-1}"
  move_in
  machines_apart
}
evictions() { "$work/evictions" --dir "$work" --lab "$world" --for "${UNWATCHED:-60s}" --guard "$top/deploy/guard-deletions" "$@"; }
if [ "${1-}" = --guard ]; then
  world_at_rest >&2
  halt
  evictions --guard-alone
  writer_says
  exit
fi
# First, since two worlds at once would each slow the other down: a thousand OSDs, of a simulated Ceph.
(cd "$top" && "$work/scale" --events "${SCALE_EVENTS:-25}" --busy "${SCALE_BUSY:-5}" --jobs "${JOBS:-500}")
world_at_rest >&2
lab-in-image --name "$world" "$work/bench" --events "${EVENTS:-100}" --openings "${OPENINGS:-20}" --busy "${BUSY:-20}" --jobs "${JOBS:-500}"
# The same world, with lockkeeper behind a proxy that counts its requests; it costs time, so it comes after.
halt
lab-in-image --name "$world" "$work/drains" --dir "$work" --lab "$world" --drains "${DRAINS:-6}" --idle "${IDLE:-3m}"
# And at last with everybody evicting.
evictions
writer_says
