#!/usr/bin/env bash
# build.sh: builds lab/bin/karpenter, Karpenter with its kwok provider, and puts its CRDs beside it, as its module ships them.
set -euo pipefail
cd "$(dirname "$0")"

module=$(go list -m -f '{{.Dir}}' sigs.k8s.io/karpenter)
manifests=../bin/karpenter-manifests
rm -rf "$manifests"
mkdir -p "$manifests"
cp "$module"/kwok/charts/crds/*.yaml "$module"/kwok/apis/crds/*.yaml "$manifests"
chmod -R u+w "$manifests"
CGO_ENABLED=0 exec go build -gcflags=all=-dwarf=false -ldflags="-s -w" -o ../bin/karpenter tool
