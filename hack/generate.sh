#!/usr/bin/env bash
# generate.sh: writes what is generated from the types in api/. With --check it only says whether that was forgotten.
set -euo pipefail
cd "$(dirname "$0")/.."

generate() { # generate DEEPCOPY-FOLDER CRD-FOLDER
  controller-gen object crd paths=./api/... "output:object:dir=$1" "output:crd:dir=$2"
}
if [ "${1:-}" != --check ]; then
  generate api/v1alpha1 deploy/crds
  exit
fi
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
generate "$fresh/object" "$fresh/crds"
if ! diff -u api/v1alpha1/zz_generated.deepcopy.go "$fresh/object/zz_generated.deepcopy.go" || ! diff -ru deploy/crds "$fresh/crds"; then
  echo "generated files are not current: run 'make generate' and commit the result" >&2
  exit 1
fi
