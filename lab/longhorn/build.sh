#!/usr/bin/env bash
# build.sh: builds Longhorn's manager, instance manager, engine and backing-image manager, and what an instance manager
# calls, into lab/bin/longhorn, and puts the CRDs that the manager's module ships beside them.
set -euo pipefail
cd "$(dirname "$0")"

# Longhorn's engine is linked with libqcow and zlib for backing images that are not raw, which the lab does without.
bin=$(realpath -m ../bin/longhorn)
mkdir -p "$bin/lib"
for library in qcow z; do
  [ -e "$bin/lib/lib$library.a" ] || ar rcs "$bin/lib/lib$library.a"
done
export CGO_ENABLED=1 CGO_CFLAGS="-I$PWD/qcow" CGO_LDFLAGS="-L$bin/lib"

manager=github.com/longhorn/longhorn-manager
version=$(go list -m -f '{{.Version}}' "$manager")
build() { # NAME PACKAGE
  go build -gcflags=all=-dwarf=false -ldflags="-s -w -X $manager/meta.Version=$version" -o "$bin/$1" "$2"
}
build longhorn-manager ./cmd/longhorn-manager
build longhorn-instance-manager github.com/longhorn/longhorn-instance-manager
build longhorn github.com/longhorn/longhorn-engine
build backing-image-manager github.com/longhorn/backing-image-manager
build grpc_health_probe ./cmd/grpc-health-probe

# The CRDs come as a Helm template, of which only the lines of their labels are templates.
grep -v '{{' "$(go list -m -f '{{.Dir}}' "$manager")/k8s/crds.yaml" >"$bin/crds.yaml"
