package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// WatchInput says what the keeper knows already.
type WatchInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Watching
	// CloseBudgets: the budgets are ours, and close at once when the storage cluster falls silent.
	CloseBudgets bool `json:"closeBudgets,omitempty"`
}

// WatchStorage looks at the storage cluster over a kept connection, about once a second and more often while something
// is out of order, and returns only when there is something new. A cluster at rest costs no history and no request to
// the API server.
func (k *Keeper) WatchStorage(ctx context.Context, in WatchInput) (Watched, error) {
	ctx, stop := untilWorkerStops(ctx)
	defer stop()
	c, err := k.Clusters.StorageCluster(ctx, in.Cluster)
	if err != nil {
		if in.Last.Unavailable == "" {
			return Watched{Unavailable: err.Error(), Fingerprint: "unavailable"}, nil
		}
		return Watched{}, Unavailable("connect to the storage cluster", err)
	}
	activity.RecordHeartbeat(ctx, in.Last)
	w, err := c.Watch(ctx, in.Watching, func(w Watched) { activity.RecordHeartbeat(ctx, w) })
	if err != nil {
		return Watched{}, Unavailable("watch the storage cluster", err)
	}
	if w.Unavailable != "" && in.Last.Unavailable == "" && in.CloseBudgets {
		// The keeper may be busy. Closing is never wrong, and what cannot be closed now the keeper closes.
		if err := k.Budgets.RaiseAlarm(ctx, in.Cluster, "the storage cluster: "+w.Unavailable); err != nil {
			activity.GetLogger(ctx).Warn("the budgets could not be closed", "error", err)
		}
	}
	return w, nil
}

// JobInput names a job by its workflow and the first run of its chain.
type JobInput struct {
	WorkflowID string `json:"workflowID"`
	RunID      string `json:"runID"`
}

// AwaitJobEnd returns when the job has ended in any way: completed, failed, cancelled, terminated, timed out.
func (k *Keeper) AwaitJobEnd(ctx context.Context, in JobInput) (string, error) {
	ctx, stop := untilWorkerStops(ctx)
	defer stop()
	go beat(ctx)
	how, err := k.Jobs.AwaitEnd(ctx, in.WorkflowID, in.RunID)
	if err != nil {
		return "", Unavailable("wait for the end of "+in.WorkflowID, err)
	}
	return how, nil
}

// untilWorkerStops ends a long activity when its worker is told to stop, so that it fails at once, is retried at once by
// another worker, and a rollout of workers costs nobody a heartbeat timeout.
func untilWorkerStops(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-activity.GetWorkerStopChannel(ctx):
			cancel(errWorkerStops)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

var errWorkerStops = errors.New("the worker stops")

// busy is for an activity that makes many requests: it heartbeats until stop is called, and ends when its worker stops.
func busy(ctx context.Context) (_ context.Context, stop context.CancelFunc) {
	ctx, stop = untilWorkerStops(ctx)
	go beat(ctx)
	return ctx, stop
}

// beat heartbeats, until ctx ends, for an activity that is blocked in a call of its own.
func beat(ctx context.Context) { beatWith(ctx, func() []any { return nil }) }

// beatWith heartbeats with what details says, which people see in Temporal.
func beatWith(ctx context.Context, details func() []any) {
	t := time.NewTicker(2 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			activity.RecordHeartbeat(ctx, details()...)
		case <-ctx.Done():
			return
		}
	}
}
