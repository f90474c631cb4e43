// Package image gives containers another root filesystem than the machine's: Ceph releases, unpacked from Debian's own
// packages.
//
// Nothing is installed. Packages are fetched and unpacked into a cache beside Go's build cache, once for all labs, and
// programs in them run in a mount namespace that shows their /usr instead of the machine's.
package image
