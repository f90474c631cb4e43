#!/bin/bash
# The program of the image of backing-image managers and their data sources, which listen on all addresses of the machine:
# here each of them listens on its pod's. Between two of them a file goes through ports of the machine, of which each
# manager takes a range that no other has.
arguments=()
for argument; do
  [[ $argument != :* ]] || argument=$POD_IP$argument
  arguments+=("$argument")
done
if [[ " $* " = *" daemon "* ]]; then
  for ((slot = 0; slot < LAB_SLOTS; slot++)); do
    exec 9>"/run/lab-longhorn-ports/image-$slot"
    flock -n 9 && break
  done
  if ((slot == LAB_SLOTS)); then
    echo "no free range of ports: $LAB_SLOTS backing-image managers run on this machine" >&2
    exit 1
  fi
  first=$((LAB_FIRST_IMAGE_PORT + slot * LAB_SLOT_IMAGE_PORTS))
  arguments+=(--port-range "$first-$((first + LAB_SLOT_IMAGE_PORTS - 1))")
fi
exec /usr/local/lib/backing-image-manager "${arguments[@]}"
