#!/usr/bin/env bash
# bench-fencing.sh [--quick]: measures how soon lockkeeper holds Machines back and how soon it releases one, under write load, in a lab of
# its own, and prints one line "name value unit" for each figure. What happens meanwhile goes to standard error. It takes about a quarter of
# an hour. EVENTS=n sets how many pods of OSDs are deleted, and how many nodes fail (20); --quick takes 3.
set -euo pipefail
case ${1-} in
  '') ;;
  --quick) : "${EVENTS:=3}" ;;
  *) echo "bench-fencing.sh: $1: allowed is --quick, or nothing" >&2; exit 2 ;;
esac
# shellcheck source=hack/world.sh
. "$(dirname "${BASH_SOURCE[0]}")/world.sh"
go -C "$top" build -o "$work/fencing" ./test/bench/fencing

# make_machines: the API, a Machine of metal for each node, which is started again and keeps its disks, and a health check of them all.
make_machines() {
  kubectl apply -f "$top/test/api/testdata/fencing-crds.yaml" >/dev/null
  kubectl create namespace machines >/dev/null
  kubectl wait --for=condition=Established -f "$top/test/api/testdata/fencing-crds.yaml" --timeout=30s >/dev/null
  for node in $(kubectl get nodes -o 'jsonpath={.items[*].metadata.name}'); do
    cat <<YAML
---
apiVersion: machine.openshift.io/v1beta1
kind: Machine
metadata: {name: machine-of-$node, namespace: machines, labels: {pool: storage}}
spec: {providerID: "baremetalhost:///machines/$node"}
status: {nodeRef: {name: $node}}
YAML
  done | kubectl apply -f - >/dev/null
  kubectl apply -f - >/dev/null <<YAML
apiVersion: machine.openshift.io/v1beta1
kind: MachineHealthCheck
metadata: {name: storage, namespace: machines}
spec:
  selector: {matchLabels: {pool: storage}}
  unhealthyConditions:
    - {type: Ready, status: Unknown, timeout: 2s}
    - {type: Ready, status: "False", timeout: 2s}
YAML
}

install+=(--fencing MachineDisruptionBudget:machines)
{
  enter_world "${BENCH_NAME:-bench-fencing}" --zones 3 --nodes-per-zone "${NODES_PER_ZONE:-2}" --osds-per-node 1
  make_machines
  move_in # and not machines_apart: it puts Temporal last, by which every hold and release goes
} >&2
lab-in-image --name "$world" "$work/fencing" --lab "$world" --events "${EVENTS:-20}" --timeout 2s
writer_says
