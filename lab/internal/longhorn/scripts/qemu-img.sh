#!/bin/bash
# qemu-img info --output=json FILE, as Longhorn asks: in a lab every image is raw.
if [[ $1 != info ]]; then
  echo "qemu-img $*: a lab has raw images only" >&2
  exit 1
fi
size=$(stat --dereference --format=%s "${*: -1}") || exit
printf '{"filename": "%s", "format": "raw", "virtual-size": %d, "actual-size": %d}\n' "${*: -1}" "$size" "$size"
