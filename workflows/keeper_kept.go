package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
)

// This file is about whether the policy's status is true now, and how whoever reads it can tell.

// QueryKept is the query by which the watcher asks a keeper whether it keeps the policy's status up to date. A query
// leaves no trace in the history, and only a worker can answer it.
const QueryKept = "kept"

// Kept answers the query "kept".
type Kept struct {
	OK  bool   `json:"ok"`
	Why string `json:"why,omitempty"` // it is not kept
}

// renewEvery is how old a status may become before the keeper confirms it. It is the one cost of a cluster at rest.
const renewEvery = 5 * time.Minute

// renew confirms the status whenever it has not been written for a while. It is not a part of rest, where every pass
// would cost a timer.
func (k *keeper) renew(ctx workflow.Context) {
	wait := k.renewal(workflow.Now(ctx))
	for {
		if wait <= 0 {
			k.reportLater(ctx)
			if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
				k.wakeUp() // a keeper that does nothing else has a history, too
			}
			wait = renewEvery
		}
		if err := workflow.NewTimerWithOptions(ctx, wait, workflow.TimerOptions{Summary: "confirm the status"}).Get(ctx,
			nil); err != nil {
			return
		}
		wait = k.renewal(workflow.Now(ctx))
	}
}

// confirm tells that the status as it was reported is true as of now. When it says something else, it is to be written
// anew.
func (k *keeper) confirm(ctx workflow.Context) (confirmed bool, err error) {
	in := activities.RenewInput{
		Cluster: k.cluster,
		Renewal: activities.Renewal{MayDrain: k.state.Reported.MayDrain, AsOf: workflow.Now(ctx)},
	}
	r, err := call(quick(ctx, "confirm the status"), keeping.RenewStatus, in)
	if err != nil || r.Differs {
		return false, err
	}
	k.state.Reported.AsOf = in.AsOf
	return true, nil
}
