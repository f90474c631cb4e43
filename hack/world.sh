# shellcheck shell=bash
# world.sh: sourced by scripts that run lockkeeper in a lab of their own. Whatever they start is stopped when they end, in
# whatever way; KEEP=1 leaves a world that was fine running, to play in.
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
eval "$(make -s -C "$top" env)" # the flags as well: with others everything would be compiled once more
work=$(mktemp -d "${TMPDIR:-/tmp}/lockkeeper.XXXXXX")
pids=()
watcher=
world=
install=() # flags for install-in-lab.sh

leave_world() {
  status=$?
  trap - EXIT INT TERM
  if [ $status != 0 ]; then
    printf '\n%s failed. The last words of lockkeeper:\n' "${0##*/}" >&2
    tail -n 15 "$work"/*.log >&2 2>/dev/null || true
  elif [ -n "${KEEP:-}" ]; then
    # shellcheck disable=SC2016 # for the reader to expand
    printf '\nLeft running. To play: eval "$(lab env --name %s)"\nTo end it: kill %s; lab down --name %s\n' "$world" "${pids[*]}" "$world"
    exit 0
  fi
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  if [ -n "$world" ]; then lab down --name "$world" >/dev/null 2>&1 || true; fi
  rm -rf "$work"
  exit $status
}
trap leave_world EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# enter_world NAME FLAG…: starts a lab and makes its environment this script's.
enter_world() {
  local name=$1; shift
  lab up --name "$name" "$@" # one that fails leaves nothing, and may have failed because the lab is somebody else's
  world=$name
  eval "$(lab env --name "$world")"
  export PATH="$top/bin:$PATH"
}

# move_in: installs lockkeeper and starts it and the writer; returns when the keeper has seen the world at rest. In a world
# without OSDs lockkeeper makes them, as $CEPHOSD says.
move_in() {
  if [ -n "${CEPHOSD:-}" ]; then install+=(--cephosd ceph-osds); fi
  start_lockkeeper lab-in-image --name "$world"
  if [ -n "${CEPHOSD:-}" ]; then
    kubectl apply -f "$CEPHOSD" >/dev/null
    until_says 120 '^UpToDate$' kubectl -n rook-ceph get cephosd ceph-osds -o 'jsonpath={.status.reason}'
  fi
  lab load start --name "$world" >/dev/null
  until_says 60 '^any node$' policy '{.status.mayDrain}'
}

# start_lockkeeper [IN…]: installs lockkeeper and starts it, the worker by the command IN, by which it sees the lab's librados.
start_lockkeeper() {
  "$top/hack/install-in-lab.sh" "${install[@]}" "$work"
  # Each in a session of its own, as they are pods of their own where it counts: Linux shares the processors among sessions first.
  KUBECONFIG=$work/worker.kubeconfig setsid "$@" lockkeeper-worker 2>"$work/worker.log" & pids+=($!)
  KUBECONFIG=$work/watch.kubeconfig setsid lockkeeper watch --leader-elect-namespace lockkeeper-system 2>"$work/watch.log" & watcher=$!; pids+=("$watcher")
}

# adopt_mons: has lockkeeper look after the mons of a lab with --mon-storage, as they are; returns when it does.
adopt_mons() {
  kubectl apply -f "$CEPHMON" >/dev/null
  kubectl -n rook-ceph patch cephmon mons --type=merge \
    -p '{"spec":{"zones":[{"name":"zone-x"},{"name":"zone-y"},{"name":"zone-z"}]}}' >/dev/null
  until_says 60 '^Settled 3/3$' kubectl -n rook-ceph get cephmon mons -o 'jsonpath={.status.reason} {.status.quorum}'
}

# machines_apart: Temporal's server and the control plane have machines of their own where it counts. Here they share with all else,
# and hundreds of jobs, or an OSD that starts, have whoever closes wait for a processor. So Temporal comes last, and the API server and
# etcd, which is in the lab's own process, first. All kubelets are in that process, too, so that the watcher comes with it: behind them
# it waited for a processor for up to 220 ms.
machines_apart() {
  local at=${KUBECONFIG%/*}
  worth 10 "$(pgrep -f -- "server start-dev .*--port ${TEMPORAL_ADDRESS##*:} ")"
  worth -10 "$(pgrep -f -- "kube-apiserver .*=$at/pki/")"
  worth -10 "$(sed -nE 's/.*"pid": ?([0-9]+).*/\1/p' "$at/supervisor.json")"
  worth -10 "$watcher"
}

# worth NICE PID: gives a process a priority, and its session, too: where Linux shares the processors among sessions first, priorities
# count within each only. What only root may do is left out for others.
worth() {
  renice -n "$1" -p "$2" >/dev/null 2>&1 || true
  echo "$1" 2>/dev/null >"/proc/$2/autogroup" || true
}

# halt: ends lockkeeper's own processes, and leaves all else as it is.
halt() {
  for pid in "${pids[@]}"; do kill "$pid"; done
  for pid in "${pids[@]}"; do wait "$pid" || true; done
  pids=()
}

# writer_says: figures of the writer, as lines "name value unit".
writer_says() {
  lab load report --name "$world" -o json |
    sed -nE 's/.*"(failed_writes|lost_writes)": *([0-9]+).*/\1 \2 writes/p; s/.*"(longest_stall_ms)": *([0-9.]+).*/\1 \2 ms/p'
}

policy() { kubectl -n rook-ceph get maintenancepolicy rook-ceph -o "jsonpath=$1"; }

# until_says SECONDS PATTERN COMMAND…: waits until the command's output matches; says what it waited for when it does not.
until_says() {
  local end=$((SECONDS + $1)) pattern=$2 out=; shift 2
  until out=$("$@" 2>&1) && grep -qE "$pattern" <<<"$out"; do
    if [ $SECONDS -ge $end ]; then printf 'waited in vain for "%s" from: %s\n%s\n' "$pattern" "$*" "$out" >&2; return 1; fi
    sleep 0.1
  done
}
