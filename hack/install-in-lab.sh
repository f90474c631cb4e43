#!/usr/bin/env bash
# install-in-lab.sh --longhorn DIR, or [--mons] [--flush] [--fencing API:NAMESPACE] [--cephosd NAME] DIR: puts lockkeeper into the running lab of this
# environment (eval "$(lab env)" first): API, rights, a Ceph user with no more rights than it needs, and a policy. Writes
# DIR/worker.kubeconfig and DIR/watch.kubeconfig, with which the two processes run as their service accounts. With --cephosd, for a lab
# whose OSDs run from a CephOSD, the policy's OSDs are the pods of the CephOSD of that name. With --flush it may have OSDs report at
# once, which takes all rights over them. With --fencing it holds the Machines of that namespace. With --mons it may move mons. With
# --longhorn the lab has Longhorn and no Ceph. May be repeated.
set -euo pipefail
osds='' flush='' fencing='' mons='' osdcaps=() moncaps='' longhorn=''
if [ "${1:-}" = --longhorn ]; then
  longhorn=yes
  shift
fi
if [ "${1:-}" = --mons ]; then
  mons=yes
  shift
fi
if [ "${1:-}" = --flush ]; then
  flush='flushPGStats: true' osdcaps=(osd 'allow *') moncaps=', allow service mon r, allow service osd r'
  shift
fi
if [ "${1:-}" = --fencing ]; then
  machines=${2#*:}
  fencing="fencing: {api: ${2%%:*}${machines:+, namespace: $machines}}"
  shift 2
fi
if [ "${1:-}" = --cephosd ]; then
  osds="osds: {selector: {matchLabels: {ceph.elemental.net/owner: CephOSD-${2:?--cephosd: a name is missing}}}}"
  shift 2
fi
dir=${1:?usage: install-in-lab.sh --longhorn DIR, or [--mons] [--flush] [--fencing API:NAMESPACE] [--cephosd NAME] DIR}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ns=rook-ceph system=lockkeeper-system

kubectl apply -f "$top/deploy/crds" >/dev/null
kubectl create namespace "$system" --dry-run=client -o yaml | kubectl apply -f - >/dev/null
kubectl apply -f "$top/deploy/rbac.yaml" -f "$top/deploy/admission.yaml" >/dev/null

kubectl wait --for=condition=Established -f "$top/deploy/crds" --timeout=30s >/dev/null

# for_longhorn gives lockkeeper what the installation in longhorn-system takes, and has its budgets decide.
for_longhorn() {
  kubectl -n longhorn-system apply -f "$top/deploy/storage-namespace.yaml" -f "$top/deploy/storage-namespace-longhorn.yaml" >/dev/null
  kubectl apply -f "$top/deploy/longhorn/one-writer.yaml" -f "$top/deploy/examples/maintenancepolicy-longhorn.yaml" >/dev/null
}

# for_ceph gives lockkeeper what the cluster in rook-ceph takes.
for_ceph() {
  # Rook's OSDs are restarted there, those of a CephOSD are lockkeeper's own.
  more=restart-osds
  if [ -n "$osds" ]; then more=cephosd; fi
  kubectl -n "$ns" apply -f "$top/deploy/storage-namespace.yaml" -f "$top/deploy/storage-namespace-$more.yaml" >/dev/null
  if [ -n "$fencing" ]; then
    kubectl -n "$ns" apply -f "$top/deploy/storage-namespace-fencing.yaml" >/dev/null
    if [ -n "$machines" ]; then kubectl -n "$machines" apply -f "$top/deploy/fencing-namespace.yaml" >/dev/null; fi
    if [ -z "$machines" ]; then kubectl apply -f "$top/deploy/fencing-nodes.yaml" >/dev/null; fi
  fi
  if [ -n "$mons" ]; then
    kubectl -n "$ns" apply -f "$top/deploy/storage-namespace-cephmon.yaml" >/dev/null
    moncaps="$moncaps, $(cat "$top/deploy/ceph-caps-cephmon.txt")"
  fi

  # A user for lockkeeper alone: it may look, ask, and switch noout on CRUSH nodes; nothing else.
  caps=$(cat "$top/deploy/ceph-caps.txt")$moncaps
  ceph auth caps client.lockkeeper mon "$caps" "${osdcaps[@]}" >/dev/null 2>&1 ||
    ceph auth get-or-create client.lockkeeper mon "$caps" "${osdcaps[@]}" >/dev/null
  key=$(ceph auth get-key client.lockkeeper)
  kubectl -n "$ns" create secret generic lockkeeper-ceph-user --dry-run=client -o yaml \
    --from-literal=ceph-username=client.lockkeeper --from-literal=ceph-secret="$key" | kubectl apply -f - >/dev/null
  kubectl apply -f - >/dev/null <<YAML
apiVersion: lockkeeper.io/v1alpha1
kind: MaintenancePolicy
metadata: {name: rook-ceph, namespace: $ns}
spec:
  ceph:
    connection:
      credentials: {name: lockkeeper-ceph-user}
    $osds
    $flush
  $fencing
YAML
}

if [ -n "$longhorn" ]; then for_longhorn; else for_ceph; fi

server=$(kubectl config view --minify -o 'jsonpath={.clusters[0].cluster.server}')
ca=$(kubectl config view --minify --raw -o 'jsonpath={.clusters[0].cluster.certificate-authority}')
cadata=$(kubectl config view --minify --raw -o 'jsonpath={.clusters[0].cluster.certificate-authority-data}')
for who in worker watch; do
  account=lockkeeper-worker; [ $who = watch ] && account=lockkeeper-watcher
  token=$(kubectl -n "$system" create token "$account" --duration=12h)
  umask 077
  cat >"$dir/$who.kubeconfig" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "$server", ${ca:+certificate-authority: "$ca"}${cadata:+certificate-authority-data: "$cadata"}}}]
users: [{name: $account, user: {token: "$token"}}]
contexts: [{name: lab, context: {cluster: lab, user: $account, namespace: $system}}]
current-context: lab
YAML
done
