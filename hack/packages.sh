#!/usr/bin/env bash
# packages.sh: makes sure that the Debian packages are there that the worker is compiled with and the lab runs: Ceph, librados'
# headers, a C compiler. Installs what is missing when it may, and otherwise says what to install.
set -euo pipefail

missing=()
need() { # need PACKAGE PROGRAM-OR-FILE
  if [[ $2 == /* ]]; then [ -e "$2" ] || missing+=("$1"); else command -v "$2" >/dev/null || missing+=("$1"); fi
}
need ceph-mon ceph-mon
need ceph-mgr ceph-mgr
need ceph-osd ceph-osd
need ceph-common ceph
need librados-dev /usr/include/rados/librados.h
need gcc gcc
need libc6-dev /usr/include/stdlib.h
[ ${#missing[@]} -gt 0 ] || exit 0

install="apt-get install -y --no-install-recommends ${missing[*]}"
if ! command -v apt-get >/dev/null; then
  echo "missing: ${missing[*]} (names of Debian's packages). Install your system's equivalents: ceph-mon, ceph-mgr, ceph-osd and ceph" \
    "in PATH, librados' headers in /usr/include/rados, and a C compiler." >&2
  exit 1
fi
if [ "$(id -u)" != 0 ]; then
  echo "missing: ${missing[*]}. Install them, then run make again:" >&2
  echo "  sudo apt-get update && sudo $install" >&2
  exit 1
fi
echo "install ${missing[*]} (Ceph is about 62 MB to download; half a minute)"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
SECONDS=0
apt() { apt-get -q -o DPkg::Lock::Timeout=120 "$@" >>"$log" 2>&1; }
if ! { apt install -y --no-install-recommends "${missing[@]}" || { apt update && apt install -y --no-install-recommends "${missing[@]}"; }; }; then
  tail -n 20 "$log" >&2
  echo "could not install ${missing[*]}; by hand: apt-get update && $install" >&2
  exit 1
fi
echo "install ${missing[*]}: done in $SECONDS s"
