#!/usr/bin/env bash
# demo.sh: a real small world (Kubernetes control plane, Ceph, Temporal), one node of it drained with lockkeeper while a
# writer writes all the time, rebooted, and brought back. Everything it starts it also stops. KEEP=1 leaves the world
# running and says how to play in it.
set -euo pipefail
# shellcheck source=hack/story.sh
. "$(dirname "${BASH_SOURCE[0]}")/story.sh"

say "A small world: 3 zones, 6 nodes, 3 mons, 6 OSDs"
enter_world "${DEMO_NAME:-demo}"

say "lockkeeper moves in: API, rights, a Ceph user that may only look and switch noout, a MaintenancePolicy"
move_in
show kubectl -n rook-ceph get maintenancepolicy
show kubectl -n rook-ceph get pdb

say "What would draining node-a do?"
show lockkeeper drain node-a --plan

say "Drain it, and follow"
lockkeeper drain node-a --reason "demo: new kernel" --follow 2>&1 | sed -u 's/^/  | /' & follow=$!
until_says 60 AwaitingNode lockkeeper status node-a -o json
show kubectl get nodes
show kubectl -n rook-ceph get pods -l app=rook-ceph-osd -o wide
show kubectl -n rook-ceph get pdb lockkeeper-rook-ceph-osd-proved -o 'jsonpath={.spec}{"\n"}'

say "Meanwhile somebody tries to drain node-b, in another zone: refused, whatever they do"
kubectl drain node-b --ignore-daemonsets --delete-emptydir-data --timeout=6s 2>&1 | tail -n 3 | sed 's/^/  /' || true
kubectl uncordon node-b >/dev/null

say "node-a reboots"
lab fault node-reboot node-a --name "$world"
kubectl uncordon node-a | sed 's/^/  /'
wait $follow
until_says 60 '^any node$' policy '{.status.mayDrain}'

say "What the API server saw"
kubectl -n rook-ceph get events --field-selector involvedObject.kind=MaintenancePolicy -o 'custom-columns=AT:.lastTimestamp,REASON:.reason,MESSAGE:.message' --sort-by=.lastTimestamp | sed 's/^/  /'
show kubectl -n rook-ceph get maintenancepolicy,pdb
say "What Ceph saw"
show ceph -s
say "What the writer saw"
lab load report --name "$world" | sed 's/^/  /'
report=$(lab load report --name "$world" -o json)
for figure in failed_writes lost_writes; do
  grep -qE "\"$figure\": *0[,}]?" <<<"$report" || { echo "the writer saw $figure" >&2; exit 1; }
done
say "Done: node-a was drained, rebooted and is back; nothing was lost."
