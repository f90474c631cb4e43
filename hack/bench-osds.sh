#!/usr/bin/env bash
# bench-osds.sh [--quick]: measures how lockkeeper rolls a new pod template out to OSDs, under write load, in labs of its own, one
# after the other, and prints one line "name value unit" for each figure. What happens meanwhile goes to standard error. PARTS says
# what (all of them):
#   many     10,000 OSDs, which no lab holds: they are simulated, to see what Temporal has to remember
#   fast     24 OSDs in 3 zones of 4 nodes, whose daemons report every second
#   default  6 OSDs on 3 nodes, whose daemons report as seldom as Ceph's defaults say
#   flush    the same, where lockkeeper may have OSDs report at once
# --quick takes 6 OSDs on 3 nodes for fast and simulates 600, which tells whether it works, and not how fast it is.
set -euo pipefail
nodes=4 many=10000
case ${1-} in
  '') ;;
  --quick) nodes=1 many=600 ;;
  *) echo "bench-osds.sh: $1: allowed is --quick, or nothing" >&2; exit 2 ;;
esac

# roll_out NODES ARGUMENTS FLAG…: in a lab with so many nodes a zone and these flags, the bench with these arguments. In a shell of its
# own, so that its lab ends with it.
roll_out() (
  local per_zone=$1 arguments=$2; shift 2
  # shellcheck source=hack/world.sh
  . "$(dirname "${BASH_SOURCE[0]}")/world.sh"
  go -C "$top" build -o "$work/rollouts" ./test/bench/rollouts
  if [ -n "${FLUSH:-}" ]; then install+=(--flush); fi
  {
    enter_world "${BENCH_NAME:-bench-osds}" --zones 3 --nodes-per-zone "$per_zone" --osds-per-node 2 --osd-pods none "$@"
    move_in
  } >&2
  # shellcheck disable=SC2086 # several words
  lab-in-image --name "$world" "$work/rollouts" $arguments
  writer_says
)

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
for part in ${PARTS:-many fast default flush}; do
  case $part in
    many) # first, since two worlds at once would each slow the other down
      (cd "$top" && go test ./workflows -run '^TestManyOSDs$' -count=1 -timeout 30m -v -osds.n="$many" -osds.report) | tee /dev/stderr | grep -E '^many_' ;;
    fast) roll_out "$nodes" '' ;;
    default) roll_out 1 '--overhead default' --ceph-periods default ;;
    flush) FLUSH=1 roll_out 1 '--overhead default_flush' --ceph-periods default ;;
    *) echo "bench-osds.sh: PARTS: $part: allowed are many, fast, default and flush" >&2; exit 2 ;;
  esac
done
