#!/usr/bin/env bash
# build.sh: builds bin/lab, the control plane, kubelet and command line in one static binary, and beside it the two small ones that
# start often.
# The first build compiles Kubernetes: several minutes of CPU. The flags are those of `go test` in this module too (README.md):
# others would compile it once more.
set -euo pipefail
cd "$(dirname "$0")"

# What the programs say they are. kube-apiserver refuses to start without a version.
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
stamp=
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  stamp+=" -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=$(cut -d. -f2 <<<"$version")"
  stamp+=" -X $package.gitTreeState=clean -X $package.gitCommit=lab -X $package.buildDate=2026-01-01T00:00:00Z"
done
CGO_ENABLED=0 exec go build -gcflags=all=-dwarf=false -ldflags="-s -w$stamp" -o bin/ ./cmd/lab ./cmd/lab-in-image ./cmd/lab-kubectl
