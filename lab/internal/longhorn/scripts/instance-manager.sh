#!/bin/bash
# The entry point of the image of an instance manager. Its children listen on all addresses of the machine, so each
# instance manager takes a range of ports that no other has: the lock lives as long as any process that inherited it.
for ((slot = 0; slot < LAB_SLOTS; slot++)); do
  exec 9>"/run/lab-longhorn-ports/$slot"
  flock -n 9 && break
done
if ((slot == LAB_SLOTS)); then
  echo "no free range of ports: $LAB_SLOTS instance managers run on this machine" >&2
  exit 1
fi
first=$((LAB_FIRST_PORT + slot * LAB_SLOT_PORTS))
mkdir -p /log/instances
exec longhorn-instance-manager --debug daemon --listen "$POD_IP:8500" \
  --port-range "$first-$((first + LAB_SLOT_PORTS - 1))" --logs-dir /log/instances
