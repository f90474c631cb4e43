// Package workflows holds lockkeeper's durable jobs, one file each, and the keeper that grants them the right to
// disrupt. They read like the runbooks that an administrator would follow; every look at the world and every change to
// it is an activity, every decision a pure function.
package workflows

import (
	"time"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TaskQueue is where all workflows and activities run.
const TaskQueue = "lockkeeper"

// DeadlockTimeout is how long a step of a workflow may take before it is given up as one that hangs. It is far more
// than any step needs, since a step that is given up is tried again 10 s later, and a machine with too much to do keeps
// a worker from its processors for longer than the SDK's second.
const DeadlockTimeout = 5 * time.Second

// ByType has each workflow under its type.
var ByType = map[string]any{
	jobs.Keeper.Type: Keeper, jobs.DrainNode.Type: DrainNode, jobs.FenceNode.Type: FenceNode,
	jobs.UpdateOSDs.Type: UpdateOSDs, jobs.RestartOSDs.Type: RestartOSDs,
	jobs.ScaleDownNode.Type: ScaleDownNode, jobs.RestartWaiting.Type: RestartWaiting,
	jobs.MigrateMons.Type: MigrateMons, jobs.PlanMons.Type: PlanMons,
}

// KeeperID is the ID of the one keeper of a storage cluster.
func KeeperID(k storage.ClusterKey) string { return jobs.Keeper.ID(k.Namespace, k.Name) }
