// Package runtime runs containers as local processes.
//
// There are no images: a container's root filesystem is the machine's own, seen through a private mount namespace in
// which the volumes are where the pod wants them. What a container needs and the machine lacks (a mount point such as
// /etc/ceph) exists in that namespace only. All containers share the machine's network; each pod has a loopback address
// of its own.
//
// The caller must live in a PID namespace of its own with /proc mounted for it: a container's processes are found, and
// ended, by the mount namespace they are in, so that none escapes by starting a new session.
package runtime
