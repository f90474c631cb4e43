#!/usr/bin/env bash
# record-histories.sh VERSION: plays drains in a lab of its own and keeps their histories, and the keeper's, as
# workflows/testdata/VERSION-*.json.gz for the replay test. Run it before a release; histories of older versions stay.
set -euo pipefail
version=${1:?usage: record-histories.sh VERSION, for instance v0.1}
# shellcheck source=hack/world.sh
. "$(dirname "${BASH_SOURCE[0]}")/world.sh"

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

mkdir -p "$top/workflows/testdata"
for id in keeper/rook-ceph/rook-ceph drain/node-a drain/node-b drain/node-c drain/node-d; do
  file=$top/workflows/testdata/$version-${id//\//-}.json.gz
  # Which process on which machine it was is nobody's business.
  temporal workflow show --workflow-id "$id" -o json | sed -E 's/"identity": "[^"]*"/"identity": "lab"/' | gzip -9n >"$file"
  echo "${file#"$top"/}: $(zcat "$file" | grep -c '"eventId"') events, $(wc -c <"$file") bytes"
done
# What `lockkeeper history` tells of them.
(cd "$top" && go test ./internal/history -run TestRecorded -update)
