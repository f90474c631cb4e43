// Package deploy holds what is applied to install lockkeeper, as far as lockkeeper itself has to know it.
package deploy

import _ "embed" // for RBAC

// RBAC is rbac.yaml: the accounts of the watcher and the worker, and the rights that they need.
//
//go:embed rbac.yaml
var RBAC []byte
