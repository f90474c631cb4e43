package activities

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Watching is what a watcher begins with.
type Watching struct {
	Last Watched `json:"last"`
	// Doubted is when something happened of which the storage cluster may not have heard yet. What was proved before that
	// does not count; the zero time: nothing did.
	Doubted time.Time `json:"doubted,omitzero"`
}

// Asking is the question which daemons live.
type Asking struct {
	Outside storage.FailureDomain `json:"outside,omitzero"` // its own daemons do not matter
	Known   *storage.Life         `json:"known,omitempty"`  // the answer before, when somebody was silent
}

// Watched is what a watcher last knew.
type Watched struct {
	Health      storage.Health `json:"health"`
	Quorum      Quorum         `json:"quorum"`
	Unavailable string         `json:"unavailable,omitempty"`
	// Fingerprint stands for everything else whose change must be looked at: which daemons are up, flags, pools.
	Fingerprint string `json:"fingerprint"`
	// Flagged are the hosts with the flag, in order; nil: there are too many. Unflagged is Fingerprint without them.
	Flagged   []string `json:"noout"`
	Unflagged string   `json:"unflagged,omitempty"`
	// Disconnected stands for the daemons that are up and that the governors do not hear; "": there are none.
	Disconnected string `json:"disconnected,omitempty"`
	// Lived is how long ago, at the most, every daemon that is up was seen to have reported anew, and ReportPeriod the
	// time between two reports. ReportPeriod 0: neither is known. LivedFor is for how long that counts; 0, of an older
	// worker: a period and a quarter.
	Lived        time.Duration `json:"lived,omitempty"`
	LivedFor     time.Duration `json:"livedFor,omitempty"`
	ReportPeriod time.Duration `json:"reportPeriod,omitempty"`
	// Opens names who may leave now and could not before; "": nobody, or that is not to be told by watching.
	Opens string `json:"opens,omitempty"`
	// At is when it was known, by the clock of Temporal's server.
	At time.Time `json:"at,omitzero"`
}

// News tells whether anything changed that a decision depends on.
func (w Watched) News(last Watched) bool {
	return w.Fingerprint != last.Fingerprint || w.moved(last)
}

// OnlyFlags tells whether nothing changed but flags, and whether these are the hosts that carry it now.
func (w Watched) OnlyFlags(last Watched, now []string) bool {
	return w.Unflagged != "" && w.Unflagged == last.Unflagged && !w.moved(last) &&
		w.Flagged != nil && slices.Equal(w.Flagged, now)
}

// moved tells whether anything changed that is not in the fingerprint.
func (w Watched) moved(last Watched) bool {
	a, b := last.Health, w.Health
	return last.Unavailable != w.Unavailable ||
		a.Fresh != b.Fresh || a.Clean != b.Clean || a.ButDisconnected != b.ButDisconnected ||
		last.Disconnected != w.Disconnected || a.ChangeEpoch != b.ChangeEpoch ||
		!slices.Equal(a.Unexplained, b.Unexplained) ||
		!slices.Equal(last.Quorum.Mons, w.Quorum.Mons) || !slices.Equal(last.Quorum.In, w.Quorum.In)
}

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
	now := serverClock(ctx)
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
	go k.tellMons(ctx, in.Cluster, in.Last.Quorum)
	w, err := c.Watch(ctx, in.Watching, func(w Watched) { activity.RecordHeartbeat(ctx, w) })
	if err != nil {
		return Watched{}, Unavailable("watch the storage cluster", err)
	}
	w.At = now()
	if w.Unavailable != "" && in.Last.Unavailable == "" && in.CloseBudgets {
		// The keeper may be busy. Closing is never wrong, and what cannot be closed now the keeper closes.
		if err := k.Budgets.RaiseAlarm(ctx, in.Cluster, "the storage cluster: "+w.Unavailable); err != nil {
			activity.GetLogger(ctx).Warn("the budgets could not be closed", "error", err)
		}
	}
	return w, nil
}

// LifeInput asks which daemons of a storage cluster live.
type LifeInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Asking
}

// LifeAnswer is an answer and when it was given, by the clock of Temporal's server.
type LifeAnswer struct {
	storage.Life
	At time.Time `json:"at"`
}

// AskLife finds out whether every daemon that the storage cluster calls up makes a report after the question was asked.
// While nobody asks, nobody looks at the reports.
func (k *Keeper) AskLife(ctx context.Context, in LifeInput) (LifeAnswer, error) {
	now := serverClock(ctx)
	ctx, stop := untilWorkerStops(ctx)
	defer stop()
	c, err := k.Clusters.StorageCluster(ctx, in.Cluster)
	if err != nil {
		return LifeAnswer{}, Unavailable("connect to the storage cluster", err)
	}
	activity.RecordHeartbeat(ctx)
	l, err := c.Life(ctx, in.Asking, func() { activity.RecordHeartbeat(ctx) })
	if err != nil {
		return LifeAnswer{}, Unavailable("ask for signs of life", err)
	}
	return LifeAnswer{Life: l, At: now()}, nil
}

// serverClock tells the time as Temporal's server has it, by which workflows go: it gave the time at which this attempt
// began. What an activity saw may reach its workflow much later, when there was no worker for it in between.
func serverClock(ctx context.Context) (now func() time.Time) {
	began, here := activity.GetInfo(ctx).StartedTime, time.Now()
	return func() time.Time { return began.Add(time.Since(here)) }
}

// JobInput names a job by its workflow and the first run of its chain.
type JobInput struct {
	WorkflowID string `json:"workflowID"`
	RunID      string `json:"runID"`
}

// JobsInput names jobs of which any may end.
type JobsInput struct {
	Jobs []JobInput `json:"jobs"`
}

// JobsEnded names those that have ended, and how.
type JobsEnded struct {
	Ended []JobInput        `json:"ended"`
	How   map[string]string `json:"how"` // by workflow ID
}

// AwaitJobsEnd returns when one of the jobs has ended in any way, with all that have ended by then. Whoever cannot be
// asked about is asked about again, and keeps nobody from hearing of the others: the error is that of an activity that
// is told to end.
func (k *Keeper) AwaitJobsEnd(ctx context.Context, in JobsInput) (JobsEnded, error) {
	ctx, stop := busy(ctx)
	defer stop()
	type end struct {
		job JobInput
		how string
	}
	ends := make(chan end, len(in.Jobs)) // room for all, so that nobody is left behind
	for _, job := range in.Jobs {
		go func() {
			if how, err := k.untilEnd(ctx, job); err == nil {
				ends <- end{job, how}
			}
		}()
	}
	out := JobsEnded{How: map[string]string{}}
	note := func(e end) {
		out.Ended = append(out.Ended, e.job)
		out.How[e.job.WorkflowID] = e.how
	}
	select {
	case e := <-ends:
		note(e)
	case <-ctx.Done():
		return JobsEnded{}, Unavailable("wait for the end of jobs", context.Cause(ctx))
	}
	// Hundreds may have been terminated at once. Each that is told alone costs one more activity, which asks about all
	// others anew.
	for last := time.After(endTogether); len(out.Ended) < len(in.Jobs); {
		select {
		case e := <-ends:
			note(e)
		case <-last:
			return out, nil
		}
	}
	return out, nil
}

// endTogether is how long after the first end others count as of the same time. Whoever ends in order has given its
// claim back before.
const endTogether = 200 * time.Millisecond

// askAgainAfter is the pause before a job is asked about again, which doubles up to its bound.
const (
	askAgainAfter  = 500 * time.Millisecond
	askAgainAtMost = 30 * time.Second
)

// untilEnd waits for the end of a job, whatever fails, until ctx ends.
func (k *Keeper) untilEnd(ctx context.Context, job JobInput) (string, error) {
	for wait := askAgainAfter; ; wait = min(2*wait, askAgainAtMost) {
		how, err := k.Jobs.AwaitEnd(ctx, job.WorkflowID, job.RunID)
		if err == nil || ctx.Err() != nil {
			return how, err
		}
		activity.GetLogger(ctx).Warn("cannot wait for the end of a job, asks again", "job", job.WorkflowID, "after",
			wait, "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// untilWorkerStops ends a long activity when its worker is told to stop, so that it fails at once, is retried at once
// by another worker, and a rollout of workers costs nobody a heartbeat timeout.
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
