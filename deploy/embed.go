// Package deploy holds what is applied to install lockkeeper, as far as lockkeeper itself has to know it.
package deploy

import _ "embed" // for RBAC

// RBAC is rbac.yaml: the accounts of the watcher and the worker, and the rights that they need.
//
//go:embed rbac.yaml
var RBAC []byte

// CephOSD is storage-namespace-cephosd.yaml: what the worker needs on top of that in a namespace with a CephOSD.
//
//go:embed storage-namespace-cephosd.yaml
var CephOSD []byte

// RestartOSDs is storage-namespace-restart-osds.yaml: what it needs where `lockkeeper restart-osds` is to work.
//
//go:embed storage-namespace-restart-osds.yaml
var RestartOSDs []byte

// Longhorn is storage-namespace-longhorn.yaml: what it needs for a Longhorn installation.
//
//go:embed storage-namespace-longhorn.yaml
var Longhorn []byte

// LonghornDetach is storage-namespace-longhorn-detach.yaml: what it needs for a policy that has volumes be detached.
//
//go:embed storage-namespace-longhorn-detach.yaml
var LonghornDetach []byte

// LonghornEvict is storage-namespace-longhorn-evict.yaml: what it needs for a policy that has replicas be moved.
//
//go:embed storage-namespace-longhorn-evict.yaml
var LonghornEvict []byte

// CephMon is storage-namespace-cephmon.yaml: what it needs where it is to look after the mons of a CephMon.
//
//go:embed storage-namespace-cephmon.yaml
var CephMon []byte

// GuardDeletions is guard-deletions/policy.yaml: what refuses deletions as the budgets refuse evictions. It is here so
// that a mutant of it is what its tests install.
//
//go:embed guard-deletions/policy.yaml
var GuardDeletions []byte
