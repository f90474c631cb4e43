#!/bin/sh
# make-store.sh: makes the store of a new mon, in an init container that may be killed at any moment.
#
# It is made beside its place and then renamed, so that a store in its place is whole. One that is there is kept if it is this mon's, and
# refused if it is anybody else's: ceph-mon --mkfs says rc 0 to every store that it finds, whole or half-made, of whatever mon or cluster, and
# a mon on another cluster's store lives on happily there. Nothing is ever deleted but what this script has begun itself.
#
# MON_ID, FSID: whose store it is. VOLUME: where it belongs; the store is VOLUME/store. KEYRING: a file with the mons' key. MON_HOST: where the
# other mons are now, as in ceph.conf. MON_ADDRESS: under which address this one will be in the monmap.
set -eu

store=$VOLUME/store
begun=$VOLUME/store.begun
owner="lockkeeper mon.$MON_ID of $FSID"

refuse() {
  echo "make-store: $*; nothing was changed" >&2
  exit 64
}

for dir in "$VOLUME" "$VOLUME"/*; do
  if [ "$dir" = "$store" ] || [ "$dir" = "$begun" ]; then continue; fi
  if [ -e "$dir/store.db" ] || [ -e "$dir/kv_backend" ]; then refuse "$dir is the store of a mon that lockkeeper did not make"; fi
done
if [ -e "$store" ]; then
  found=$(cat "$store/owner.lockkeeper" 2>/dev/null) || refuse "$store is the store of a mon that lockkeeper did not make"
  if [ "$found" != "$owner" ]; then refuse "$store is the store of $found, not of $owner"; fi
  exit 0
fi
rm -rf "$begun" "$begun.monmap"
mkdir -p "$begun"

# The monmap is taken at each try: a mon that looks for mons which have moved since looks for ever, without an error.
ceph --name mon. --keyring "$KEYRING" -m "$MON_HOST" --connect-timeout 15 mon getmap -o "$begun.monmap"
print=$(monmaptool --print "$begun.monmap")
case $print in
*"fsid $FSID"*) ;;
*) refuse "the mons at $MON_HOST are of another cluster than $FSID" ;;
esac
known=$(echo "$print" | sed -n "s/^[0-9]*: \(.*\) mon\.$MON_ID\$/\1/p" | sed 's,/0,,g')
if [ -n "$known" ] && [ "$known" != "$MON_ADDRESS" ]; then
  refuse "the monmap has mon.$MON_ID already, at $known and not at $MON_ADDRESS"
fi
ceph-mon --mkfs --id "$MON_ID" --mon-data "$begun" --monmap "$begun.monmap" --keyring "$KEYRING"
rm -f "$begun.monmap"

# The mark is in the store before it gets its name, and both are on the disk before the next container starts.
echo "$owner" >"$begun/owner.lockkeeper"
sync
mv -T "$begun" "$store"
sync
