package longhorn

import "slices"

// Workload is a Deployment, or a pod without one, in Longhorn's namespace.
type Workload struct {
	Name string
	// Component and ManagedBy are its labels longhorn.io/component and longhorn.io/managed-by.
	Component, ManagedBy string
	// LocalStorage tells whether it mounts a folder of its node, or an emptyDir: an autoscaler would not move it then.
	LocalStorage bool
}

// The Deployments that may be moved from a node without harm, whatever their labels say.
var movable = []string{
	"longhorn-ui", "longhorn-csi-plugin", "csi-attacher", "csi-provisioner", "csi-resizer", "csi-snapshotter",
}

// The components that hold data, or serve it, and must not be moved by an autoscaler.
var helpers = []string{"backing-image-manager", "backing-image-data-source", "share-manager"}

// IsHelper tells whether pods of a component keep their nodes from being removed.
func IsHelper(component string) bool { return slices.Contains(helpers, component) }

// SafeToEvict tells whether a workload's pods get the annotation cluster-autoscaler.kubernetes.io/safe-to-evict. Only
// pods with local storage need it. Without the setting nobody gets it: as Longhorn has it by itself.
func (s Settings) SafeToEvict(w Workload) bool {
	if !s.ClusterAutoscaler || !w.LocalStorage || IsHelper(w.Component) {
		return false
	}
	return w.Component == "instance-manager" || w.ManagedBy == "longhorn-manager" || slices.Contains(movable, w.Name)
}
