// Package workflows holds lockkeeper's durable jobs, one file each, and the keeper that grants them the right to
// disrupt. They read like the runbooks that an administrator would follow; every look at the world and every change to
// it is an activity, every decision a pure function.
package workflows

import (
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TaskQueue is where all workflows and activities run.
const TaskQueue = "lockkeeper"

// DeadlockTimeout is how long a step of a workflow may take before it is given up as one that hangs. It is far more than any step
// needs, since a step that is given up is tried again 10 s later, and a machine with too much to do keeps a worker from its
// processors for longer than the SDK's second.
const DeadlockTimeout = 5 * time.Second

// Workflow type names, as `temporal workflow start --type` takes them.
const (
	KeeperType      = "Keeper"
	DrainNodeType   = "DrainNode"
	UpdateOSDsType  = "UpdateOSDs"
	RestartOSDsType = "RestartOSDs"
)

const (
	keeperPrefix  = "keeper/"
	drainPrefix   = "drain/"
	updatePrefix  = "update-osds/"
	restartPrefix = "restart-osds/"
)

// KeeperID is the ID of the one keeper of a storage cluster.
func KeeperID(k storage.ClusterKey) string { return keeperPrefix + k.String() }

// DrainID is the ID of the one drain of a node.
func DrainID(node string) string { return drainPrefix + node }

// DrainedNode is the reverse of DrainID.
func DrainedNode(workflowID string) (node string, ok bool) {
	return strings.CutPrefix(workflowID, drainPrefix)
}

// UpdateOSDsID is the ID of the one rollout of a CephOSD.
func UpdateOSDsID(namespace, name string) string { return updatePrefix + namespace + "/" + name }

// RestartOSDsID is the ID of the one restart of a namespace's OSDs.
func RestartOSDsID(namespace string) string { return restartPrefix + namespace }

// RolledOut is the reverse of UpdateOSDsID and of RestartOSDsID; of a restart there is no name.
func RolledOut(workflowID string) (namespace, name string, ok bool) {
	if rest, is := strings.CutPrefix(workflowID, updatePrefix); is {
		namespace, name, ok = strings.Cut(rest, "/")
		return namespace, name, ok && namespace != "" && name != ""
	}
	namespace, ok = strings.CutPrefix(workflowID, restartPrefix)
	return namespace, "", ok && namespace != ""
}

// isJob tells whether a workflow may hold a lease.
func isJob(workflowID string) bool {
	for _, prefix := range []string{drainPrefix, updatePrefix, restartPrefix} {
		if rest, ok := strings.CutPrefix(workflowID, prefix); ok && rest != "" {
			return true
		}
	}
	return false
}
