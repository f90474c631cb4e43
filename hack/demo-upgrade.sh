#!/usr/bin/env bash
# demo-upgrade.sh [--deployments]: Ceph 16, then 18, then 20, on the same data, while a writer writes all the time. A person changes the
# images of the mons and of the manager, one after the other, as an operator would, and allows the new release's features between the hops;
# lockkeeper brings the OSDs of a CephOSD along, zone by zone, or those that Deployments run, as Rook's. Everything it starts it also
# stops; KEEP=1 leaves the world running.
set -euo pipefail
case ${1-} in
  '') shape=cephosd; flags=(--osd-pods none) ;;
  --deployments) shape=deployments; flags=() ;;
  *) echo "demo-upgrade.sh: $1: allowed is --deployments, or nothing" >&2; exit 2 ;;
esac
# shellcheck source=hack/story.sh
. "$(dirname "${BASH_SOURCE[0]}")/story.sh"

declare -A feature=([18]=reef [20]=tentacle)

quorum() { ceph quorum_status --format json | tr -d ' \n' | grep -oE '"quorum_names":\[[^]]*\]'; }
versions() { # versions KIND: how many daemons of a kind run which release, as "3 × 18.2.7"
  ceph versions --format json | tr -d '\n' | grep -oE "\"$1\": *\{[^}]*\}" | grep -oE 'ceph version [0-9.]+[^"]*": *[0-9]+' |
    sed -E 's/ceph version ([0-9.]+).*": *([0-9]+)/\2 × \1/' | paste -sd, -
}
of_release() { kubectl -n rook-ceph get pods -l "ceph_daemon_type=$1,ceph_daemon_id=$2" -o 'jsonpath={range .items[*]}{.spec.containers[0].image} {.status.phase} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}'; }

mon_may_stop() { if ceph mon ok-to-stop "$1" >/dev/null 2>&1; then echo yes; fi; }

upgrade_mons() { # upgrade_mons RELEASE: one at a time, and only when all are in quorum
  local id
  for id in a b c; do
    until_says 60 '"a","b","c"' quorum
    until_says 60 '^yes$' mon_may_stop "$id" # not while the others still elect
    kubectl -n rook-ceph set image "deployment/rook-ceph-mon-$id" "mon=lab/ceph:$1" | sed 's/^/  /'
    until_says 60 "^lab/ceph:$1 Running True$" of_release mon "$id"
  done
  until_says 60 '"a","b","c"' quorum
  until_says 60 "^3 × $1\.[0-9.]*$" versions mon
}

upgrade_manager() {
  kubectl -n rook-ceph set image deployment/rook-ceph-mgr-a "mgr=lab/ceph:$1" | sed 's/^/  /'
  until_says 90 "^1 × $1\.[0-9.]*$" versions mgr
  if [ "$1" = 20 ]; then # the manager makes a pool of its own, whose copies may be in one zone: then only hosts could go, one by one
    until_says 60 '^\.mgr$' ceph osd pool ls
    ceph osd pool set .mgr crush_rule lab 2>&1 | sed 's/^/  /'
  fi
}

# What follows is done to a CephOSD, and to Deployments:
# want_osds_SHAPE RELEASE asks for OSDs of that image, and osds_wait_for_SHAPE says what keeps them from it; upgrade_osds_SHAPE RELEASE
# sees it through.
want_osds_cephosd() {
  kubectl -n rook-ceph patch cephosd ceph-osds --type=json -p "[
    {\"op\": \"replace\", \"path\": \"/spec/podTemplate/spec/containers/0/image\", \"value\": \"lab/ceph:$1\"},
    {\"op\": \"replace\", \"path\": \"/spec/updateDomain\", \"value\": \"Zone\"}]" | sed 's/^/  /'
}
osds_wait_for_cephosd() { kubectl -n rook-ceph get cephosd ceph-osds -o 'jsonpath={.status.message}'; }
upgrade_osds_cephosd() {
  want_osds_cephosd "$1"
  lockkeeper update-osds rook-ceph/ceph-osds --wait --follow --timeout 10m 2>&1 | sed -u 's/^/  | /'
}
# shellcheck disable=SC2034 # read as job_$shape
job_cephosd=rook-ceph/ceph-osds

# What can never be is refused at once, and the command fails.
want_osds_deployments() { show lockkeeper restart-osds -n rook-ceph --update-domain Zone --image "lab/ceph:$1" || true; }
osds_wait_for_deployments() { lockkeeper status restart-osds/rook-ceph; }
upgrade_osds_deployments() {
  # One that was asked for before the mons were ready goes on by itself.
  if [[ $(osds_wait_for_deployments) != *"runs since"* ]]; then want_osds_deployments "$1"; fi
  timeout 10m lockkeeper status restart-osds/rook-ceph -w 2>&1 | sed -u 's/^/  | /'
}
# shellcheck disable=SC2034 # read as job_$shape
job_deployments=restart-osds/rook-ceph

# give_up RELEASE: whoever began with the OSDs stops after the first zone, as an operator does that waits for HEALTH_OK
give_up() {
  "want_osds_$shape" "$1"
  until_says 120 "2 × $1\." versions osd
  job=job_$shape
  show lockkeeper abort "${!job}"
  show ceph versions
}

upgrade_osds() {
  "upgrade_osds_$shape" "$1"
  until_says 60 "^6 × $1\.[0-9.]*$" versions osd
}

say "A small world of Ceph 16: 3 zones, 6 nodes, 3 mons, 6 OSDs ($shape)"
enter_world "${DEMO_NAME:-demo-upgrade}" --ceph 16 "${flags[@]}"
say "lockkeeper moves in, and a writer writes"
move_in
if [ $shape = deployments ]; then
  say "lockkeeper may not make pods here, and so cannot ask an image for its version: a person may say it"
  want_osds_deployments 18
  until_says 60 'who knows its version can say so' osds_wait_for_deployments
  show lockkeeper status restart-osds/rook-ceph
  show lockkeeper abort restart-osds/rook-ceph
  until_says 60 'ended .*Aborted' osds_wait_for_deployments
  say "Or it gets that right"
  show kubectl -n rook-ceph apply -f "$top/deploy/storage-namespace-cephosd.yaml"
fi
show ceph versions
say "A person is in a hurry, and wants OSDs of 20 at once, which skips a release too many"
"want_osds_$shape" 20
until_says 60 'more than 2 releases newer' "osds_wait_for_$shape"
show lockkeeper status
say "Then of 18, before the mons: lockkeeper waits, and no OSD stops"
"want_osds_$shape" 18
until_says 60 'not all monitors are of release 18' "osds_wait_for_$shape"
show lockkeeper status
show ceph versions
upgrading=$SECONDS
for release in 18 20; do
  say "Ceph $release: the mons, one at a time"
  upgrade_mons $release
  say "Ceph $release: the manager"
  upgrade_manager $release
  if [ $release = 20 ]; then
    say "Ceph 20: keys of a type that older daemons have are an error now, until they are rotated. Nobody who waits for HEALTH_OK goes on"
    show ceph health
    say "Ceph 20: the first OSDs, and then somebody gives up"
    give_up $release
  fi
  say "Ceph $release: the OSDs, by lockkeeper, zone by zone"
  upgrade_osds $release
  say "Ceph $release: a person allows what is new in it, now that no OSD is older"
  show ceph osd require-osd-release "${feature[$release]}"
  show ceph versions
done
upgrade_s=$((SECONDS - upgrading))
until_says 60 '^any node$' policy '{.status.mayDrain}'
say "What Ceph says"
show ceph -s
say "What the writer saw"
figures=$(lab load stop --name "$world" -o json)
lab load report --name "$world" | sed 's/^/  /'
sed -nE 's/.*"(failed_writes|lost_writes)": *([0-9]+).*/\1 \2 writes/p; s/.*"(longest_stall_ms)": *([0-9.]+).*/\1 \2 ms/p' <<<"$figures"
echo "upgrade_s $upgrade_s s"
for figure in failed_writes lost_writes; do
  grep -qE "\"$figure\": *0[,}]?" <<<"$figures" || { echo "the writer saw $figure" >&2; exit 1; }
done
say "Done: Ceph went from 16 over 18 to 20 on the same data; nothing was lost."
