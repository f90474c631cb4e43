#!/usr/bin/env bash
# bench-osds.sh [--quick]: measures how lockkeeper rolls a new pod template out to OSDs, under write load, in a lab of its own
# with 24 of them in 3 zones of 4 nodes, and prints one line "name value unit" for each figure. What happens meanwhile goes to
# standard error. No lab holds 10,000 OSDs: they are simulated, to see what Temporal has to remember.
# --quick takes 6 OSDs on 3 nodes and simulates 600, which tells whether it works, and not how fast it is.
set -euo pipefail
nodes=4 many=10000
case ${1-} in
  '') ;;
  --quick) nodes=1 many=600 ;;
  *) echo "bench-osds.sh: $1: allowed is --quick, or nothing" >&2; exit 2 ;;
esac
# shellcheck source=hack/world.sh
. "$(dirname "${BASH_SOURCE[0]}")/world.sh"
# First, since two worlds at once would each slow the other down: many OSDs, of a simulated fleet.
(cd "$top" && go test ./workflows -run '^TestManyOSDs$' -count=1 -timeout 30m -v -osds.n="$many" -osds.report) >"$work/many"
grep -E '^many_' "$work/many"
go -C "$top" build -o "$work/rollouts" ./test/bench/rollouts
{
  enter_world "${BENCH_NAME:-bench-osds}" --zones 3 --nodes-per-zone "$nodes" --osds-per-node 2 --osd-pods none
  move_in
} >&2
"$work/rollouts"
writer_says
