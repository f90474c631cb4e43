#!/bin/bash
# Runs the OSD whose store is $OSD_DEVICE, which alone knows its number.
set -eu
read -r id <"$OSD_DEVICE/whoami" || [ -n "$id" ]

# Each OSD has ports of its own, so that its address stays the same.
port=$((FIRST_PORT + PORTS * id))
serves() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }

# A second daemon would wait for its predecessor's lock for a moment only, and take other ports. Whoever starts it too early shall
# see it here.
if serves; then
  echo "osd.$id: $OSD_DEVICE is in use by another daemon: waiting for its end" >&2
  while serves; do sleep 0.05; done
fi

# Its place is in the CRUSH map already.
exec "$CEPH_OSD" --foreground --id="$id" --osd-data="$OSD_DEVICE" --keyring="$OSD_DEVICE/keyring" \
  --osd-crush-update-on-start=false --ms-bind-port-min="$port" --ms-bind-port-max="$((port + PORTS - 1))"
