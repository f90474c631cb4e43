#!/usr/bin/env bash
# generate.sh: writes what is generated from the types in api/. With --check it only says whether that was forgotten.
set -euo pipefail
cd "$(dirname "$0")/.."

groups=(api/v1alpha1 api/ceph/v1alpha1)

generate() { # generate FOLDER: the deep copies of each group, and deploy/crds, below it
  local group
  for group in "${groups[@]}"; do
    controller-gen object crd:generateEmbeddedObjectMeta=true "paths=./$group" \
      "output:object:dir=$1/$group" "output:crd:dir=$1/deploy/crds"
  done
  go run ./hack/trimcrd "$1/deploy/crds/ceph.elemental.net_cephosds.yaml"
}
if [ "${1:-}" != --check ]; then
  generate .
  exit
fi
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
generate "$fresh"
stale=
for group in "${groups[@]}"; do
  diff -u "$group/zz_generated.deepcopy.go" "$fresh/$group/zz_generated.deepcopy.go" || stale=yes
done
diff -ru deploy/crds "$fresh/deploy/crds" || stale=yes
if [ -n "$stale" ]; then
  echo "generated files are not current: run 'make generate' and commit the result" >&2
  exit 1
fi
