#!/usr/bin/env bash
# test-adapter.sh [RELEASE…]: what the unit tests take for granted about Ceph, asked of real clusters of Ceph 16, 18 and 20, with the rights
# of deploy/ceph-caps.txt and the librados of each. RUN='^TestLate$' measures how late Ceph's word
# is, under load.
set -euo pipefail
# shellcheck source=hack/world.sh
source "$(dirname "$0")/world.sh"

# mon_pid MON: the process of a mon of this lab. Others may have one of the same name; what a pod mounts is in its lab's folder.
mon_pid() {
  local pid
  for pid in $(pgrep -f -- "ceph-mon .*--id=$1( |\$)"); do
    if grep -q "/$world/" "/proc/$pid/mountinfo"; then echo "$pid"; fi
  done
}

cd "$top/internal/ceph/rados"
go test -c -tags lab,netgo,osusergo -o "$work/rados.test" .
releases=${*:-16 18 20}
for release in $releases; do
  enter_world "adapter-$release" --temporal=false --ceph "$release"
  echo "Ceph $release:"
  if [ -n "${RUN:-}" ]; then lab load start --name "$world" >/dev/null; fi # where nothing is written nothing moves
  asked() {
    # Within the image its own programs are meant, and not the lab's, which would enter it again.
    LOCKKEEPER_TEST_CEPH_CONF=$CEPH_CONF LOCKKEEPER_TEST_KUBECTL=$(command -v kubectl) PATH=$(dirname "$(command -v lab)"):/usr/bin:/bin \
      lab-in-image "$work/rados.test" -test.v "$@"
  }
  asked -test.run "${RUN:-^TestLab}" -test.skip '^TestLabAHungMon$'
  if [ -z "${RUN:-}" ]; then # at last, since the mons elect twice because of it
    LOCKKEEPER_TEST_MON_PID=$(mon_pid c) asked -test.run '^TestLabAHungMon$'
  fi
  lab down --name "$world" >/dev/null
  world=
done
