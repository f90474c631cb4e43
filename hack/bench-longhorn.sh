#!/usr/bin/env bash
# bench-longhorn.sh [--quick]: measures how soon lockkeeper decides who may leave when a node of Longhorn is tainted or cordoned, and what it
# costs that volumes are attached, in a lab of its own with the real Longhorn, which decides alone before. Prints one line "name value unit"
# for each figure. What happens meanwhile goes to standard error. It takes some ten minutes. EVENTS=n sets how many nodes are tainted, and how
# many are cordoned (20), ATTACHES=n how many times volumes are attached or detached, one a second (120; a multiple of 12); --quick takes 4 and 12.
set -euo pipefail
case ${1-} in
  '') ;;
  --quick) : "${EVENTS:=4}" "${ATTACHES:=12}" ;;
  *) echo "bench-longhorn.sh: $1: allowed is --quick, or nothing" >&2; exit 2 ;;
esac
# shellcheck source=hack/world.sh
. "$(dirname "${BASH_SOURCE[0]}")/world.sh"
go -C "$top" build -o "$work/longhorn" ./test/bench/longhorn

# First, since it has no lab beside it: a decision about a large installation.
go -C "$top" test ./internal/longhorn -run '^$' -bench '^BenchmarkDecide$' -benchtime 50x |
  awk '/^BenchmarkDecide/ {
    name = $1; sub(/.*\//, "", name); sub(/-[0-9]+$/, "", name)
    for (i = 3; i < NF; i += 2) {
      if ($(i+1) == "ns/op") printf "decide_%s_ms %.1f ms\n", name, $i / 1e6
      if ($(i+1) == "B/op") printf "decide_%s_mb %.1f MB\n", name, $i / 1e6
      if ($(i+1) == "kept-nodes") printf "kept_nodes %d nodes\n", $i
      if ($(i+1) == "greedy-nodes") printf "greedy_nodes %d nodes\n", $i
    }
  }'

longhorn() { kubectl -n longhorn-system "$@"; }
answer() { longhorn get maintenancepolicy longhorn -o 'jsonpath={.status.mayDrain}'; }
read_volume() { # read_volume FILE: data's bytes
  lab volume attach data node-a --name "$world"
  lab volume read data --name "$world" >"$1"
  lab volume detach data --name "$world"
}
{
  enter_world "${BENCH_NAME:-bench-longhorn}" --ceph=none --longhorn --nodes-per-zone=1
  longhorn patch settings.longhorn.io kubernetes-cluster-autoscaler-enabled --type=merge -p '{"value":"true"}' >/dev/null
  lab volume create data --replicas 3 --size 16Mi --name "$world"
  lab volume attach data node-a --name "$world"
  lab load start --volume data --name "$world" >/dev/null
  sleep 2
  lab load stop --name "$world" >/dev/null
  lab volume detach data --name "$world"
  read_volume "$work/before"
} >&2
"$work/longhorn" --lab "$world" --alone --events "${EVENTS:-20}"
pair_up() { # a volume of two replicas, and on which nodes they are
  lab volume create pair --replicas 2 --size 8Mi --name "$world"
  lab volume attach pair node-a --name "$world"
  lab volume detach pair --name "$world"
  pair=$(longhorn get replicas.longhorn.io -l longhornvolume=pair -o 'jsonpath={.items[0].spec.nodeID},{.items[1].spec.nodeID}')
} >&2
pair_up
"$work/longhorn" --lab "$world" --alone --pair "$pair"
{
  install=(--longhorn)
  start_lockkeeper
  worker=${pids[-2]}
  until_says 90 '^one of [^,]*, [^,]*$' answer
} >&2
"$work/longhorn" --lab "$world" --events "${EVENTS:-20}"
"$work/longhorn" --lab "$world" --pair "$pair"
for i in 0 1 2 3 4 5; do lab volume create "busy-$i" --replicas 3 --size 8Mi --name "$world"; done >&2
memory() { ps -o rss= -p "$worker" | awk -v name="$1" '{printf "%s %.0f MB\n", name, $1 / 1024}'; }
memory worker_memory_before
"$work/longhorn" --lab "$world" --events 1 --attaches "${ATTACHES:-120}" | grep -E 'attach|history'
memory worker_memory_after
{
  until_says 120 '^one of [^,]*, [^,]*$' answer
  read_volume "$work/after"
} >&2
printf 'lost_bytes %d bytes\n' "$(cmp -l "$work/before" "$work/after" | wc -l)"
