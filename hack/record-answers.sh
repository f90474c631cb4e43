#!/usr/bin/env bash
# record-answers.sh [RELEASE…]: asks real clusters of Ceph 16, 18 and 20 what lockkeeper asks, and writes their answers for the tests to
# internal/ceph/testdata/releases: once with all well, once with osd.0 down. Each command's exit code, if it is not 0, is in exit-codes.
set -euo pipefail
# shellcheck source=hack/world.sh
source "$(dirname "$0")/world.sh"

record() { # record SITUATION COMMAND…
  local situation=$1 name code=0; shift
  name=$situation.$(tr ' ' - <<<"$*")
  timeout 30 ceph "$@" --format json >"$out/$name.json" 2>/dev/null || code=$?
  if [ $code != 0 ]; then echo "$name $code" >>"$out/exit-codes"; fi
}

# without_machine: OSDs tell of the machine that they run on, and sessions of that of whoever asks, which is nobody's business.
without_machine() { sed -i -E 's/"(arch|cpu|distro[a-z_]*|kernel_[a-z]*|mem_[a-z_]*|os)":"[^"]*",//g' "$out/$1.$2-metadata.json"; }

everything() { # everything SITUATION
  record "$1" status
  record "$1" quorum_status
  record "$1" osd dump
  record "$1" osd crush dump
  record "$1" mgr stat
  record "$1" osd ok-to-stop 1
  record "$1" osd ok-to-stop 0 3
  record "$1" osd ok-to-stop 0 1 2
  record "$1" osd safe-to-destroy 0 1
  record "$1" osd metadata; without_machine "$1" osd
  record "$1" mon metadata; without_machine "$1" mon
  record "$1" versions
}

settled() { # in words that a pattern can find: no group is being made, or was not heard of yet
  ceph pg stat --format json | tr -d ' \n' | grep -oE '"name":"[a-z+_]+"' | sort -u | tr '\n' ' '
}

for release in "${@:-16 18 20}"; do
  for r in $release; do
    out=$top/internal/ceph/testdata/releases/$r
    rm -rf "$out"; mkdir -p "$out"
    enter_world "answers-$r" --temporal=false --ceph "$r"
    ceph osd set-group noout node-b node-e 2>/dev/null
    until_says 30 '^"name":"active\+clean" $' settled
    everything clean
    record clean features
    for mon in a b c; do
      record clean tell mon.$mon sessions
      sed -i "s/\"remote_host\":\"$(hostname)\"/\"remote_host\":\"\"/g" "$out/clean.tell-mon.$mon-sessions.json"
    done
    ceph osd unset-group noout node-b node-e 2>/dev/null
    kubectl -n rook-ceph scale deployment rook-ceph-osd-0 --replicas=0 >/dev/null
    until_says 60 '"name":"active\+undersized' settled
    until_says 30 '^("name":"active\+(clean|undersized(\+degraded)?)" )+$' settled
    everything osd0-down
    lab down --name "$world" >/dev/null
    world=
  done
done
