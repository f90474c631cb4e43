package longhorn

import "slices"

// The components that hold data, or serve it, and must not be moved by an autoscaler. Longhorn never gives their pods
// cluster-autoscaler.kubernetes.io/safe-to-evict.
var helpers = []string{"backing-image-manager", "backing-image-data-source", "share-manager"}

// IsHelper tells whether pods of a component keep their nodes from being removed.
func IsHelper(component string) bool { return slices.Contains(helpers, component) }
