#!/usr/bin/env bash
# build.sh: builds lab/bin/cluster-api, Cluster API's core manager, and puts what has to be applied before it starts beside it:
# its CRDs and webhooks, as its module ships them.
set -euo pipefail
cd "$(dirname "$0")"

module=$(go list -m -f '{{.Dir}}' sigs.k8s.io/cluster-api)
manifests=../bin/cluster-api-manifests
rm -rf "$manifests"
mkdir -p "$manifests"
cp "$module"/core/config/crd/bases/*.yaml "$module"/core/config/webhook/manifests.yaml "$manifests"
chmod -R u+w "$manifests"
CGO_ENABLED=0 exec go build -gcflags=all=-dwarf=false -ldflags="-s -w" -o ../bin/cluster-api tool
