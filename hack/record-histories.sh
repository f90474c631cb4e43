#!/usr/bin/env bash
# record-histories.sh VERSION [fences|scale-downs|rollouts|mons]: plays drains, fences, scale-downs, rollouts and a move of mons in labs of
# its own, one after the other, or one of these parts, and keeps their histories, and the keepers', as
# workflows/testdata/VERSION-*.json.gz for the replay test. Run it before a release, after `make build longhorn`; histories of older
# versions stay.
set -euo pipefail
version=${1:?usage: record-histories.sh VERSION, for instance v0.2}
# shellcheck source=hack/world.sh
. "$(dirname "${BASH_SOURCE[0]}")/world.sh"

# keep ID…: writes histories down.
keep() {
  mkdir -p "$top/workflows/testdata"
  for id in "$@"; do
    file=$top/workflows/testdata/$version-${id//\//-}.json.gz
    # Which process on which machine it was is nobody's business.
    temporal workflow show --workflow-id "$id" -o json | sed -E 's/"identity": "[^"]*"/"identity": "lab"/' | gzip -9n >"$file"
    echo "${file#"$top"/}: $(zcat "$file" | grep -c '"eventId"') events, $(wc -c <"$file") bytes"
  done
}

if [ "${2:-}" = rollouts ]; then
  enter_world "${RECORD_NAME:-record}" --osd-pods=none
  move_in
  # shellcheck disable=SC2317 # until_says calls it
  updated() { kubectl -n rook-ceph get cephosd ceph-osds -o 'jsonpath={.status.progress} {.status.reason}'; }
  until_says 60 '6/6 UpToDate' updated
  echo "a rollout that halts, is mended, and ends"
  kubectl -n rook-ceph patch cephosd ceph-osds --type json -p '[
    {"op":"add","path":"/spec/updateDomain","value":"Zone"},
    {"op":"add","path":"/spec/progressDeadline","value":"10s"},
    {"op":"copy","from":"/spec/podTemplate/spec/containers/0/command","path":"/spec/podTemplate/spec/containers/0/args"},
    {"op":"replace","path":"/spec/podTemplate/spec/containers/0/command","value":["/bin/false"]}]' >/dev/null
  until_says 60 'Halted' updated
  kubectl -n rook-ceph patch cephosd ceph-osds --type json -p '[
    {"op":"move","from":"/spec/podTemplate/spec/containers/0/args","path":"/spec/podTemplate/spec/containers/0/command"}]' >/dev/null
  until_says 120 '6/6 UpToDate' updated
  keep update-osds/rook-ceph/ceph-osds
  exit
fi

if [ "${2:-}" = mons ]; then
  install+=(--mons)
  enter_world "${RECORD_NAME:-record}" --mon-storage hostpath
  move_in
  adopt_mons
  echo "three mons that move from paths to claims, one of them after its step was taken back"
  kubectl -n rook-ceph patch cephmon mons --type=merge \
    -p '{"spec":{"volumeClaimTemplate":{"spec":{"storageClassName":"zone-disk"}}}}' >/dev/null
  kubectl taint nodes --all node.kubernetes.io/full:NoSchedule >/dev/null
  lockkeeper migrate-mons rook-ceph/mons >/dev/null
  until_says 60 'no node for its canary' kubectl -n rook-ceph get cephmon mons -o 'jsonpath={.status.step.message}'
  newcomer() { kubectl -n rook-ceph get cephmon mons -o 'jsonpath={.status.step.mon}'; }
  first=$(newcomer) # a name may have been passed over when the spec changed between a look and its act
  kubectl -n rook-ceph patch cephmon mons --type=merge \
    -p '{"spec":{"volumeClaimTemplate":{"spec":{"storageClassName":"zone-disk","resources":{"requests":{"storage":"5Gi"}}}}}}' >/dev/null
  until_says 60 "^[^$first]$" newcomer
  kubectl taint nodes --all node.kubernetes.io/full- >/dev/null
  until_says 180 '^Settled 3/3$' kubectl -n rook-ceph get cephmon mons -o 'jsonpath={.status.reason} {.status.quorum}'
  until_says 60 Done lockkeeper status migrate-mons/rook-ceph/mons
  keep migrate-mons/rook-ceph/mons
  exit
fi

if [ "${2:-}" = fences ]; then
  install+=(--fencing MachineDisruptionBudget:machines)
  enter_world "${RECORD_NAME:-record}"
  kubectl create namespace machines >/dev/null
  kubectl apply -f "$top/test/api/testdata/fencing-crds.yaml" >/dev/null
  kubectl wait --for=condition=Established -f "$top/test/api/testdata/fencing-crds.yaml" --timeout=30s >/dev/null
  kubectl apply -f - >/dev/null <<'EOF'
apiVersion: machine.openshift.io/v1beta1
kind: MachineHealthCheck
metadata: {name: all, namespace: machines}
spec: {selector: {}, unhealthyConditions: [{type: Ready, status: Unknown, timeout: 2s}]}
EOF
  for node in node-a node-b node-c node-d node-e node-f; do
    kubectl apply -f - >/dev/null <<EOF
apiVersion: machine.openshift.io/v1beta1
kind: Machine
metadata: {name: machine-of-$node, namespace: machines}
spec: {providerID: "baremetalhost:///$node"}
status: {nodeRef: {name: $node}}
EOF
  done
  move_in
  echo "a node that lost its power, and is fenced"
  until_says 60 '^6$' policy '{.status.fencing.held}'
  lab fault node-lost node-d --name "$world"
  until_says 120 AwaitingRemediation lockkeeper status fence/node-d -o json
  lab fault node-return node-d --name "$world"
  until_says 120 '"outcome": *"Done"' lockkeeper status fence/node-d -o json
  until_says 60 '^any node$' policy '{.status.mayDrain}'
  echo "a node that lost its network alone, so that its zone is opened for it, and one that lost its power"
  until_says 60 '^6$' policy '{.status.fencing.held}'
  lab fault node-lost node-a --keep-processes --name "$world"
  until_says 120 AwaitingRemediation lockkeeper status fence/node-a -o json
  lab fault node-lost node-f --name "$world"
  lab fault node-return node-a --name "$world"
  until_says 180 '"outcome": *"Done"' lockkeeper status fence/node-a -o json
  until_says 180 AwaitingRemediation lockkeeper status fence/node-f -o json
  lab fault node-return node-f --name "$world"
  until_says 180 '"outcome": *"Done"' lockkeeper status fence/node-f -o json
  until_says 60 '^any node$' policy '{.status.mayDrain}'
  keep fence/node-{d,a,f} keeper/rook-ceph/rook-ceph
  exit
fi

if [ "${2:-}" = scale-downs ]; then
  install=(--longhorn)
  enter_world "${RECORD_NAME:-record}" --ceph=none --longhorn --nodes-per-zone=1
  start_lockkeeper
  answer() { kubectl -n longhorn-system get maintenancepolicy longhorn -o 'jsonpath={.status.mayDrain}'; }
  until_says 90 '^a node once it is cordoned$' answer
  kubectl -n longhorn-system patch settings.longhorn.io kubernetes-cluster-autoscaler-enabled --type=merge -p '{"value":"true"}' >/dev/null
  until_says 60 '^one of ' answer
  echo "a node that stays although an autoscaler announced that it leaves, and one that leaves"
  kubectl taint node node-a "ToBeDeletedByClusterAutoscaler=$(date +%s):NoSchedule" >/dev/null
  until_says 60 '^node node-a' answer
  kubectl taint node node-a ToBeDeletedByClusterAutoscaler- >/dev/null
  until_says 60 '^one of ' answer
  until_says 60 '"outcome": *"Stayed"' lockkeeper status scale-down/node-a -o json
  kubectl taint node node-b "ToBeDeletedByClusterAutoscaler=$(date +%s):NoSchedule" >/dev/null
  until_says 60 '^node node-b' answer
  kubectl drain node-b --ignore-daemonsets --delete-emptydir-data --force --timeout=60s >/dev/null 2>&1
  lab fault node-remove node-b --name "$world"
  until_says 180 '"outcome": *"Gone"' lockkeeper status scale-down/node-b -o json
  keep keeper/longhorn-system/longhorn scale-down/node-a scale-down/node-b
  exit
fi

enter_world "${RECORD_NAME:-record}"
move_in

echo "a drain by a person, paused, resumed, and ended with done"
lockkeeper drain node-a --reason "recording" >/dev/null
until_says 60 AwaitingNode lockkeeper status node-a -o json
lockkeeper pause node-a >/dev/null
lockkeeper resume node-a >/dev/null
lockkeeper 'done' node-a >/dev/null
until_says 60 '^any node$' policy '{.status.mayDrain}'

echo "an aborted drain"
lockkeeper drain node-b >/dev/null
until_says 60 AwaitingNode lockkeeper status node-b -o json
lockkeeper abort node-b >/dev/null
until_says 60 '^any node$' policy '{.status.mayDrain}'

echo "a drain from outside, with a reboot, and one that waits for its lease meanwhile"
kubectl drain node-c --ignore-daemonsets --delete-emptydir-data --timeout=60s >/dev/null 2>&1
until_says 60 'drain/node-c' policy '{.status.lease.holders[*].workflowID}'
lockkeeper drain node-d >/dev/null
sleep 2
lab fault node-reboot node-c --name "$world"
kubectl uncordon node-c >/dev/null
until_says 60 AwaitingNode lockkeeper status node-d -o json
lab fault node-reboot node-d --name "$world"
kubectl uncordon node-d >/dev/null
until_says 60 '^any node$' policy '{.status.mayDrain}'

echo "a restart of all OSDs, one after the other"
lockkeeper restart-osds -n rook-ceph --reason "recording" --wait >/dev/null
until_says 60 '^any node$' policy '{.status.mayDrain}'

keep keeper/rook-ceph/rook-ceph drain/node-a drain/node-b drain/node-c drain/node-d restart-osds/rook-ceph
halt
lab down --name "$world" >/dev/null
"$0" "$version" fences
"$0" "$version" scale-downs
"$0" "$version" rollouts
"$0" "$version" mons
# What `lockkeeper history` tells of them.
(cd "$top" && go test ./cli/history -run TestRecorded -update)
