// Package rookceph runs a real Ceph cluster on the lab's Kubernetes, in the shape that Rook gives it: the same
// namespace, Deployments, labels, ConfigMaps and Secrets, so that whatever reads Rook's objects can be tried on it.
//
// It stands in for Rook's operator at two moments only. Prepare makes what a cluster is on disk: keys, configuration,
// monitor and OSD stores, and a first conversation with the monitors that registers OSDs, CRUSH map and pool. It needs
// no Kubernetes, so it runs while the control plane starts. Deploy then hands the daemons to Kubernetes. From there on
// nobody reconciles anything: what becomes of a mon or an OSD is up to Kubernetes, Ceph and whoever is being tested.
package rookceph
