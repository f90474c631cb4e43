#!/usr/bin/env bash
# bench.sh: measures lockkeeper in a lab of its own and prints one line "name value unit" for each figure. What happens
# meanwhile goes to standard error. EVENTS=n sets how many OSDs are stopped, one after the other (50), DRAINS=n how many nodes
# are drained (6), IDLE=3m for how long lockkeeper at rest is watched.
set -euo pipefail
# shellcheck source=hack/world.sh
. "$(dirname "${BASH_SOURCE[0]}")/world.sh"
go -C "$top" build -o "$work/bench" ./test/bench
# First, since two worlds at once would each slow the other down: a thousand OSDs, of a simulated Ceph.
(cd "$top" && go run ./test/bench/scale --events "${SCALE_EVENTS:-25}")
go -C "$top" build -o "$work/drains" ./test/bench/drains
{
  enter_world "${BENCH_NAME:-bench}"
  move_in
} >&2
"$work/bench" --events "${EVENTS:-50}"
# The same world, with lockkeeper behind a proxy that counts its requests; it costs time, so it comes after.
halt
"$work/drains" --dir "$work" --lab "$world" --drains "${DRAINS:-6}" --idle "${IDLE:-3m}"
writer_says
