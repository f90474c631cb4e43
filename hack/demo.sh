#!/usr/bin/env bash
# demo.sh: a real small world (Kubernetes control plane, Ceph, Temporal), one node of it drained with lockkeeper while a
# writer writes all the time, rebooted, and brought back. Everything it starts it also stops. KEEP=1 leaves the world
# running and says how to play in it.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=${DEMO_NAME:-demo}
export PATH="$top/bin:$top/lab/bin:$PATH"
began=$(date +%s%N)
work=$(mktemp -d "${TMPDIR:-/tmp}/lockkeeper-demo.XXXXXX")
pids=()

bold='' dim='' off=''
if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' off=$'\e[0m'; fi
elapsed() { printf '%5.1f s' "$(( ($(date +%s%N) - began) / 1000000 ))e-3"; }
say() { printf '\n%s[%s] %s%s\n' "$bold" "$(elapsed)" "$*" "$off"; }
show() { printf '%s$ %s%s\n' "$dim" "$*" "$off"; "$@" 2>&1 | sed 's/^/  /'; }

finish() {
  status=$?
  trap - EXIT INT TERM
  if [ $status != 0 ]; then
    printf '\nThe demo failed. The last words of lockkeeper:\n' >&2
    tail -n 15 "$work"/*.log >&2 2>/dev/null || true
  fi
  if [ -n "${KEEP:-}" ] && [ $status = 0 ]; then
    say "Left running. eval \"\$(lab env --name $name)\" and play; lab down --name $name ends it, as does kill ${pids[*]} for lockkeeper."
    exit 0
  fi
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  lab down --name "$name" >/dev/null 2>&1 || true
  rm -rf "$work"
  exit $status
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# until_says SECONDS PATTERN COMMAND…: waits until the command's output matches; says what it waited for when it does not.
until_says() {
  local end=$((SECONDS + $1)) pattern=$2 out=; shift 2
  until out=$("$@" 2>&1) && grep -qE "$pattern" <<<"$out"; do
    if [ $SECONDS -ge $end ]; then printf 'waited in vain for "%s" from: %s\n%s\n' "$pattern" "$*" "$out" >&2; return 1; fi
    sleep 0.1
  done
}
policy() { kubectl -n rook-ceph get maintenancepolicy rook-ceph -o "jsonpath=$1"; }

say "A small world: 3 zones, 6 nodes, 3 mons, 6 OSDs"
lab up --name "$name"
eval "$(lab env --name "$name")"
export PATH="$top/bin:$PATH"

say "lockkeeper moves in: API, rights, a Ceph user that may only look and switch noout, a MaintenancePolicy"
"$top/hack/install-in-lab.sh" "$work"
KUBECONFIG=$work/worker.kubeconfig lockkeeper-worker 2>"$work/worker.log" & pids+=($!)
KUBECONFIG=$work/watch.kubeconfig lockkeeper watch --leader-elect-namespace lockkeeper-system 2>"$work/watch.log" & pids+=($!)
lab load start --name "$name" >/dev/null
until_says 60 '^any node$' policy '{.status.mayDrain}'
show kubectl -n rook-ceph get maintenancepolicy
show kubectl -n rook-ceph get pdb

say "What would draining node-a do?"
show lockkeeper drain node-a --plan

say "Drain it, and follow"
lockkeeper drain node-a --reason "demo: new kernel" --follow 2>&1 | sed 's/^/  | /' & follow=$!
until_says 60 AwaitingNode lockkeeper status node-a -o json
show kubectl get nodes
show kubectl -n rook-ceph get pods -l app=rook-ceph-osd -o wide
show kubectl -n rook-ceph get pdb lockkeeper-rook-ceph-osd -o 'jsonpath={.spec}{"\n"}'

say "Meanwhile somebody tries to drain node-b, in another zone: refused, whatever they do"
kubectl drain node-b --ignore-daemonsets --delete-emptydir-data --timeout=6s 2>&1 | tail -n 3 | sed 's/^/  /' || true
kubectl uncordon node-b >/dev/null

say "node-a reboots"
lab fault node-reboot node-a --name "$name"
kubectl uncordon node-a | sed 's/^/  /'
wait $follow
until_says 60 '^any node$' policy '{.status.mayDrain}'

say "What the API server saw"
kubectl -n rook-ceph get events --field-selector involvedObject.kind=MaintenancePolicy -o 'custom-columns=AT:.lastTimestamp,REASON:.reason,MESSAGE:.message' --sort-by=.lastTimestamp | sed 's/^/  /'
show kubectl -n rook-ceph get maintenancepolicy,pdb
say "What Ceph saw"
show ceph -s
say "What the writer saw"
lab load report --name "$name" | sed 's/^/  /'
report=$(lab load report --name "$name" -o json)
for figure in failed_writes lost_writes; do
  grep -qE "\"$figure\": *0[,}]?" <<<"$report" || { echo "the writer saw $figure" >&2; exit 1; }
done
say "Done: node-a was drained, rebooted and is back; nothing was lost."
