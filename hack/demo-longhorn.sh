#!/usr/bin/env bash
# demo-longhorn.sh: a real small world with Longhorn instead of Ceph, and lockkeeper in it. A volume is written, with a replica on each
# of three nodes, and all three are tainted for removal in the same second, as the Cluster Autoscaler does. Each is emptied as soon as
# that is allowed. At the end every byte is there. Everything it starts it also stops. KEEP=1 leaves the world running.
set -euo pipefail
# shellcheck source=hack/story.sh
. "$(dirname "${BASH_SOURCE[0]}")/story.sh"

longhorn() { kubectl -n longhorn-system "$@"; }
answer() { longhorn get maintenancepolicy longhorn -o 'jsonpath={.status.mayDrain}'; }
tainted() { # tainted NODE: as the autoscaler does it
  kubectl taint node "$1" "ToBeDeletedByClusterAutoscaler=$(date +%s):NoSchedule" >/dev/null
}
back() { # back NODE: the autoscaler gave up, or the machine is there again
  kubectl taint node "$1" ToBeDeletedByClusterAutoscaler- >/dev/null 2>&1 || true
  kubectl uncordon "$1" >/dev/null
}
all_run() { longhorn get maintenancepolicy longhorn -o 'jsonpath={.status.storage.up}'; }

say "A small world: 3 nodes, Longhorn 1.10"
enter_world "${DEMO_NAME:-demo-longhorn}" --ceph=none --longhorn --nodes-per-zone=1

say "lockkeeper moves in: Longhorn's own budgets are empty from now on, and two of lockkeeper's decide"
install=(--longhorn)
start_lockkeeper
until_says 90 '^a node once it is cordoned$' answer
longhorn patch settings.longhorn.io kubernetes-cluster-autoscaler-enabled --type=merge -p '{"value":"true"}' >/dev/null
until_says 60 '^one of ' answer
show longhorn get maintenancepolicy,pdb

say "A volume with three replicas is written, and detached"
lab volume create data --replicas 3 --size 16Mi --name "$world"
lab volume attach data node-a --name "$world"
lab load start --volume data --name "$world" >/dev/null
sleep 2
lab load stop --name "$world" >/dev/null
before=$(lab volume read data --name "$world" | sha256sum)
lab volume detach data --name "$world"
until_says 60 '^one of [^,]*, [^,]*$' answer
show longhorn get maintenancepolicy

say "All three nodes are to be removed, in the same second: none may go"
tainting=()
for node in node-a node-b node-c; do tainted $node & tainting+=($!); done
wait "${tainting[@]}"
until_says 30 '^a node once it is cordoned$' answer
show lockkeeper explain node-b || true # which says no
kubectl drain node-a --ignore-daemonsets --delete-emptydir-data --force --timeout=6s 2>&1 | tail -n 2 | sed 's/^/  /' || true
kubectl uncordon node-a >/dev/null

say "The autoscaler gives node-b up. The two others go, one after the other"
back node-b
for turn in first second; do
  until_says 60 '^node node-' answer
  node=$(answer); node=${node#node }
  kubectl drain "$node" --ignore-daemonsets --delete-emptydir-data --force --timeout=60s 2>&1 | tail -n 1 | sed "s/^/  the $turn: /"
  show longhorn get maintenancepolicy
  back "$node"
  until_says 90 '^3/3$' all_run
done

say "What is in the volume"
until_says 60 '^one of ' answer
lab volume attach data node-b --name "$world"
after=$(lab volume read data --name "$world" | sha256sum)
lab volume detach data --name "$world"
printf '  before %s\n  after  %s\n' "$before" "$after"
[ "$before" = "$after" ] || { echo "bytes were lost" >&2; exit 1; }
say "Done: three nodes were to go at once, two of them went, and every byte is there."
