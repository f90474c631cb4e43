// Package worker wires workflows and activities to a Temporal worker. Only this package and cmd know which adapters
// stand behind the activities' interfaces.
package worker

import (
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// Adapters are what activities need from outside.
type Adapters struct {
	Policies activities.Policies
	Budgets  activities.Budgets
	Nodes    activities.Nodes
	Clusters activities.StorageClusters
	OSDSets  activities.OSDSets
	Machines activities.Machines
	Mons     activities.Mons
}

// Registry is the part of a worker that Register needs; the SDK's test environment has it, too.
type Registry interface {
	RegisterWorkflowWithOptions(w any, options workflow.RegisterOptions)
	RegisterActivityWithOptions(a any, options activity.RegisterOptions)
}

// Register makes all workflows and activities known.
func Register(r Registry, a Adapters, t Temporal) {
	for name, w := range workflows.ByType {
		r.RegisterWorkflowWithOptions(w, workflow.RegisterOptions{Name: name})
	}
	r.RegisterActivityWithOptions(&activities.Keeper{
		Policies: a.Policies, Budgets: a.Budgets, Clusters: a.Clusters,
		Jobs: t, Machines: a.Machines, Mons: a.Mons, Migrations: t,
	}, activity.RegisterOptions{})
	r.RegisterActivityWithOptions(&activities.Drain{
		Nodes: a.Nodes, Policies: a.Policies, Clusters: a.Clusters,
		Keepers: t,
	}, activity.RegisterOptions{})
	r.RegisterActivityWithOptions(&activities.ScaleDown{Nodes: a.Nodes}, activity.RegisterOptions{})
	r.RegisterActivityWithOptions(&activities.Fence{
		Nodes: a.Nodes, Policies: a.Policies, Clusters: a.Clusters, Machines: a.Machines, Keepers: t,
	}, activity.RegisterOptions{})
	r.RegisterActivityWithOptions(&activities.MonJob{Mons: a.Mons, Policies: a.Policies}, activity.RegisterOptions{})
	r.RegisterActivityWithOptions(&activities.OSDs{OSDSets: a.OSDSets, Policies: a.Policies}, activity.RegisterOptions{})
}

// Temporal is what activities ask of Temporal itself.
type Temporal interface {
	activities.Jobs
	activities.Keepers
	activities.Migrations
}

// StopTimeout is how long a stopping worker lets activities finish. The pod's grace period must be longer.
const StopTimeout = 30 * time.Second

// New makes a worker on lockkeeper's task queue. Interceptors are for tests that want to be there when something begins
// or ends.
func New(c client.Client, a Adapters, interceptors ...interceptor.WorkerInterceptor) worker.Worker {
	w := worker.New(c, workflows.TaskQueue, worker.Options{
		WorkerStopTimeout: StopTimeout,
		// Every keeper has a watch and a wait for each holder under way for days; they cost a goroutine each.
		MaxConcurrentActivityExecutionSize: 2000,
		// A heartbeat carries news of a cancellation back, so this is also how soon a paused eviction stops.
		MaxHeartbeatThrottleInterval:     3 * time.Second,
		DefaultHeartbeatThrottleInterval: 3 * time.Second,
		DeadlockDetectionTimeout:         workflows.DeadlockTimeout,
		Interceptors:                     interceptors,
	})
	Register(w, a, NewTemporal(c))
	return w
}
