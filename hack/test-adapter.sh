#!/usr/bin/env bash
# test-adapter.sh [RELEASE…]: what the unit tests take for granted about Ceph, asked of real clusters of Ceph 16, 18 and 20, with the rights
# of deploy/ceph-caps.txt and the librados of each.
set -euo pipefail
# shellcheck source=hack/world.sh
source "$(dirname "$0")/world.sh"

cd "$top/internal/ceph/rados"
go test -c -tags lab -o "$work/rados.test" .
for release in ${@:-16 18 20}; do
  enter_world "adapter-$release" --temporal=false --ceph "$release"
  # Within the image its own programs are meant, and not the lab's, which would enter it again.
  LOCKKEEPER_TEST_CEPH_CONF=$CEPH_CONF PATH=$(dirname "$(command -v lab)"):/usr/bin:/bin lab in-image "$work/rados.test" -test.v -test.run '^TestLab'
  lab down --name "$world" >/dev/null
  world=
done
