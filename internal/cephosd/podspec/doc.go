// Package podspec is about the pods of a CephOSD: which OSDs it asks for, what the pod of each looks like, and what the
// pods that are there are worth. It knows Kubernetes' types, but is pure: what is known of the cluster comes in, and
// nothing is asked, read or changed.
//
// An OSD is a device of a host, and Key names it. Its pod's name follows from the key, so that the API server itself
// refuses a second pod for an OSD, whoever asks for it and whatever he has forgotten: two daemons on one device destroy
// it.
//
// Every pod is made unready: Render writes that state into it, and only who has seen it ready in Kubernetes and up in
// Ceph releases it (Release). So a pod that waits and is deleted comes back as one that waits, and a halt survives
// everything without being written down anywhere else.
package podspec
