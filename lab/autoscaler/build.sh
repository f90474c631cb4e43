#!/usr/bin/env bash
# build.sh: builds lab/bin/cluster-autoscaler. The tag leaves every cloud but ours out.
set -euo pipefail
cd "$(dirname "$0")"
CGO_ENABLED=0 exec go build -tags externalgrpc -gcflags=all=-dwarf=false -ldflags="-s -w" -o ../bin/cluster-autoscaler .
