package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
)

// This file is the keeper's ear and mouth: what wakes it, what it answers, and whom it tells.

// After a pass in which something failed the keeper waits this long, doubled each time, if nothing wakes it earlier.
const (
	retryAfter    = 2 * time.Second
	retryAfterMax = 30 * time.Second
)

func (k *keeper) answer(ctx workflow.Context) error {
	if err := workflow.SetQueryHandler(ctx, QueryStatus,
		func() (KeeperStatus, error) { return k.status(), nil }); err != nil {
		return err
	}
	if err := workflow.SetQueryHandler(ctx, QueryKept, func() (Kept, error) { return k.kept(), nil }); err != nil {
		return err
	}
	if err := k.answerFences(ctx); err != nil {
		return err
	}
	return workflow.SetUpdateHandlerWithOptions(ctx, UpdateRequestLease,
		func(ctx workflow.Context, r LeaseRequest) error {
			// What the job said before it asked comes first: it may have given the same claim back.
			if k.drainHints(ctx) {
				k.wakeUp()
			}
			k.request(workflow.Now(ctx), r.Claim)
			k.wakeUp()
			return nil
		}, workflow.UpdateHandlerOptions{Validator: func(r LeaseRequest) error {
			switch {
			case r.Claim.RunID == "" || !(LeaseRef{WorkflowID: r.Claim.WorkflowID, RunID: r.Claim.RunID}).named():
				return activities.Invalid("claim.workflowID", r.Claim.WorkflowID,
					"a lease is held by a job: its workflow ID (drain/NODE, for one) and run ID are required")
			case r.Claim.Domain.IsZero():
				return activities.Invalid("claim.domain", "", "the failure domain to disrupt is required")
			}
			return nil
		}})
}

// wakeUp asks for a pass. One request is as good as many.
func (k *keeper) wakeUp() { k.wake.SendAsync(struct{}{}) }

// rest waits until there is a reason to look. Signals that came meanwhile are one reason together.
func (k *keeper) rest(ctx workflow.Context) error {
	timerCtx, stopTimer := workflow.WithCancel(ctx)
	defer stopTimer()
	k.setTimer(ctx)
	var untold workflow.Future
	for {
		if !k.untold.IsZero() && untold == nil {
			untold = workflow.NewTimerWithOptions(timerCtx, max(k.untold.Sub(workflow.Now(ctx)), time.Millisecond),
				workflow.TimerOptions{Summary: "tell what was withheld"})
		}
		reason, err := k.awaitReason(ctx, untold)
		if err != nil || reason {
			return err
		}
		if untold != nil && untold.IsReady() {
			untold, k.untold = nil, time.Time{}
			k.notify(ctx)
		}
	}
}

// awaitReason waits for whatever comes next, and tells whether it is a reason to look.
func (k *keeper) awaitReason(ctx workflow.Context, untold workflow.Future) (reason bool, err error) {
	s := workflow.NewSelector(ctx)
	s.AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {})
	s.AddReceive(k.wake, func(c workflow.ReceiveChannel, _ bool) { reason = c.Receive(ctx, nil) })
	for _, name := range []string{SignalStorageChanged, SignalFinishLease, SignalReleaseLease, SignalEndFence} {
		s.AddReceive(workflow.GetSignalChannel(ctx, name), func(workflow.ReceiveChannel, bool) {})
	}
	if k.watch != nil {
		s.AddFuture(k.watch, func(workflow.Future) {})
	}
	if k.life != nil {
		s.AddFuture(k.life, func(workflow.Future) {})
	}
	if k.timer != nil {
		s.AddFuture(k.timer, func(workflow.Future) { k.timer, reason = nil, true })
	}
	if untold != nil {
		s.AddFuture(untold, func(workflow.Future) {})
	}
	s.Select(ctx)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return k.hear(ctx) || reason, nil
}

// hear takes in whatever has come, and tells whether any of it is a reason to look.
func (k *keeper) hear(ctx workflow.Context) (reason bool) {
	if k.watch != nil && k.watch.IsReady() {
		reason = k.hearWatch(ctx, k.watch)
	}
	if k.life != nil && k.life.IsReady() {
		k.hearLife(ctx)
		reason = true
	}
	return k.drainHints(ctx) || reason
}

// setTimer has the timer end the rest in time. One that was set for the same time goes on: most rests end because of
// something else, and each timer costs two events.
func (k *keeper) setTimer(ctx workflow.Context) {
	until, summary := k.untilNext(workflow.Now(ctx))
	if k.timer != nil && until.Equal(k.timerAt) {
		return
	}
	if k.timer != nil {
		k.stopTimer()
		k.timer = nil
	}
	if until.IsZero() {
		return
	}
	ctx, k.stopTimer = workflow.WithCancel(ctx)
	k.timerAt = until
	k.timer = workflow.NewTimerWithOptions(ctx, max(until.Sub(workflow.Now(ctx)), time.Millisecond),
		workflow.TimerOptions{Summary: summary})
}

// drainHints takes in every signal that has come, so that none is lost by continue-as-new and a burst costs one pass.
// It tells whether any of them is a reason to look.
func (k *keeper) drainHints(ctx workflow.Context) (reason bool) {
	hints := workflow.GetSignalChannel(ctx, SignalStorageChanged)
	for h := (Hint{}); hints.ReceiveAsync(&h); h = (Hint{}) {
		reason = k.hint(workflow.Now(ctx), h) || reason
	}
	finish := workflow.GetSignalChannel(ctx, SignalFinishLease)
	for r := (LeaseRef{}); finish.ReceiveAsync(&r); r = (LeaseRef{}) {
		if !r.named() {
			continue // nobody who could be told
		}
		reason = true
		k.finish(workflow.Now(ctx), r)
	}
	release := workflow.GetSignalChannel(ctx, SignalReleaseLease)
	for r := (LeaseRef{}); release.ReceiveAsync(&r); r = (LeaseRef{}) {
		reason = true
		k.state.Memory.Lease = k.state.Memory.Lease.Release(r.WorkflowID, r.RunID)
	}
	reason = k.hearFences(ctx) || reason
	return k.wake.ReceiveAsync(nil) || reason
}

// startWatch keeps exactly one watcher of the storage cluster going, under the policy as it is now: a changed policy
// may mean another connection, or another idea of what is clean, so what the old watcher said no longer counts.
func (k *keeper) startWatch(ctx workflow.Context) {
	switch {
	case k.watch == nil:
	case k.watchOf != k.observed.Generation:
		k.endWatch()
		k.state.Watched = activities.Watched{}
	case k.watchAsOf < k.state.Doubts.Data:
		k.endWatch()
	}
	if k.watch != nil || k.observed.Generation == 0 || k.observed.Second != "" {
		return
	}
	ctx, k.stopWatch = workflow.WithCancel(ctx)
	k.watchOf, k.watchAsOf = k.observed.Generation, k.state.Doubts.Last
	k.watch = begin(watching(ctx, "watch the storage cluster"), keeping.WatchStorage, activities.WatchInput{
		Cluster: k.cluster, Watching: activities.Watching{Last: k.watched(), Doubted: k.state.Doubts.DataAt},
		CloseBudgets: k.state.Manages && k.state.Conflict == "",
	})
}

func (k *keeper) endWatch() {
	if k.watch != nil {
		k.stopWatch()
		k.watch = nil
	}
}

// hearWatch takes in what the watch saw, and tells whether that is a reason to look. What the keeper itself did to
// flags is none, and then the watch goes on.
func (k *keeper) hearWatch(ctx workflow.Context, f workflow.Future) (reason bool) {
	k.watch = nil
	var w activities.Watched
	if err := f.Get(ctx, &w); err != nil {
		// The watch gives up only after a month; nothing that it said counts any longer.
		k.state.Watched = activities.Watched{}
		return true
	}
	if reason = k.saw(workflow.Now(ctx), w, k.watchAsOf); !reason {
		k.startWatch(ctx)
	}
	return reason
}

// notify tells every job what has changed about its claim.
func (k *keeper) notify(ctx workflow.Context) {
	k.notifyFences(ctx)
	k.tellAll(workflow.Now(ctx))
	k.sendAll(ctx)
}
