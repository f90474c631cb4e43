package workflows

import (
	"hash/fnv"
	"reflect"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/doubt"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is the keeper's ear and mouth: what wakes it, what it answers, and whom it tells.

// After a pass in which something failed the keeper waits this long, doubled each time, if nothing wakes it earlier.
const (
	retryAfter    = 2 * time.Second
	retryAfterMax = 30 * time.Second
)

// Every notice costs a job's history six events. So a job hears at once that its claim stands elsewhere, but ever more
// seldom that only the wording of what it waits for has changed: after 5 s, 10 s, 20 s, and in the end every 5 minutes.
// The last word is not lost: it is told when its time has come.
const (
	noticeEvery    = 5 * time.Second
	noticeEveryMax = 5 * time.Minute
)

// Told is what a job was told of its claim last.
type Told struct {
	State LeaseState `json:"state"`
	Token int64      `json:"token,omitempty"`
	Ask   int64      `json:"ask,omitempty"`
	Words uint64     `json:"words,omitempty"` // a hash of what it was told to wait for
	At    time.Time  `json:"at"`
	First time.Time  `json:"first"` // since when its claim stands where it stands
}

// next is when the job may be told that only the wording has changed.
func (t Told) next() time.Time {
	return t.At.Add(min(max(t.At.Sub(t.First), noticeEvery), noticeEveryMax))
}

func words(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return h.Sum64()
}

func (k *keeper) answer(ctx workflow.Context) error {
	if err := workflow.SetQueryHandler(ctx, QueryStatus,
		func() (KeeperStatus, error) { return k.status(), nil }); err != nil {
		return err
	}
	if err := workflow.SetQueryHandler(ctx, QueryKept, func() (Kept, error) { return k.kept(), nil }); err != nil {
		return err
	}
	return workflow.SetUpdateHandlerWithOptions(ctx, UpdateRequestLease,
		func(ctx workflow.Context, r LeaseRequest) error {
			// What the job said before it asked comes first: it may have given the same claim back.
			if k.drainHints(ctx) {
				k.wakeUp()
			}
			r.Claim.Requested = workflow.Now(ctx)
			k.state.Memory.Lease = k.state.Memory.Lease.Request(r.Claim)
			k.wakeUp()
			delete(k.state.Told, r.Claim.RunID)
			return nil
		}, workflow.UpdateHandlerOptions{Validator: func(r LeaseRequest) error {
			switch {
			case r.Claim.RunID == "" || !(LeaseRef{WorkflowID: r.Claim.WorkflowID, RunID: r.Claim.RunID}).named():
				return activities.Invalid("claim.workflowID", r.Claim.WorkflowID,
					"a lease is held by a job: its workflow ID (drain/NODE, update-osds/NAMESPACE/NAME, …) and run ID are required")
			case r.Claim.Domain.IsZero():
				return activities.Invalid("claim.domain", "", "the failure domain to disrupt is required")
			}
			return nil
		}})
}

func (k *keeper) status() KeeperStatus {
	view := k.observed.Seen.View
	view.Departed = nil // of no interest to anybody who asks
	return KeeperStatus{
		Cluster: k.cluster, Decision: k.said(), Since: k.state.Since, Lease: k.state.Memory.Lease,
		Noout: k.state.Memory.Noout, View: view, Health: k.health(), Clean: k.clean, Known: k.known(),
		Trouble: k.trouble, NextTimer: k.next, Conflict: k.state.Conflict, ReportPeriod: k.state.ReportPeriod,
		LivedFor: k.state.LivedFor,
	}
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
	for _, name := range []string{SignalStorageChanged, SignalFinishLease, SignalReleaseLease} {
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
	if k.watch != nil && k.watch.IsReady() {
		reason = k.hearWatch(ctx, k.watch) || reason
	}
	if k.life != nil && k.life.IsReady() {
		k.hearLife(ctx)
		reason = true
	}
	return k.drainHints(ctx) || reason, nil
}

// untilNext is until when to rest at most; the zero time: for as long as nothing happens.
func (k *keeper) untilNext(ctx workflow.Context) (time.Time, string) {
	if k.trouble != "" {
		pause := min(retryAfter<<min(k.failures-1, 8), retryAfterMax)
		return workflow.Now(ctx).Add(pause), clip("try again: " + k.trouble)
	}
	return k.next, "next expiry"
}

// setTimer has the timer end the rest in time. One that was set for the same time goes on: most rests end because of
// something else, and each timer costs two events.
func (k *keeper) setTimer(ctx workflow.Context) {
	until, summary := k.untilNext(ctx)
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
		k.daemonsDue = k.daemonsDue || h.Daemons
		if h.Alarm {
			k.doubt(ctx, doubt.PodStopped, "a storage daemon's pod stopped serving")
		}
		if h.Tampered {
			k.doubt(ctx, doubt.Tampered, "somebody changed or deleted a budget of lockkeeper")
		}
		if h.Disowned {
			k.state.Reported.MayDrain = "" // not what the status says any more, so it is written anew
		}
		if !h.echo(k.state.AppliedBook) {
			k.doubt(ctx, doubt.Changed, h.Reason)
			reason = true
		}
	}
	finish := workflow.GetSignalChannel(ctx, SignalFinishLease)
	for r := (LeaseRef{}); finish.ReceiveAsync(&r); r = (LeaseRef{}) {
		if !r.named() {
			continue // nobody who could be told
		}
		reason = true
		k.finish(ctx, r)
	}
	release := workflow.GetSignalChannel(ctx, SignalReleaseLease)
	for r := (LeaseRef{}); release.ReceiveAsync(&r); r = (LeaseRef{}) {
		reason = true
		k.state.Memory.Lease = k.state.Memory.Lease.Release(r.WorkflowID, r.RunID)
	}
	return k.wake.ReceiveAsync(nil) || reason
}

// finish takes in that a job has done its work.
func (k *keeper) finish(ctx workflow.Context, r LeaseRef) {
	had, holds, asked := k.state.Memory.Lease.Find(r.WorkflowID, r.RunID)
	switch {
	case asked && had.Ask > r.Ask: // what it wanted next is its claim already, and it did not hear of it
	case holds:
		k.state.Memory.Lease = k.state.Memory.Lease.Finish(r.WorkflowID, r.RunID, r.NodeGone, r.next())
		return
	case r.next() != nil: // the claim before was released while it said what it wants next
		next := *r.next()
		next.Requested = workflow.Now(ctx)
		k.state.Memory.Lease = k.state.Memory.Lease.Request(next)
	default:
		// Released before, and the job did not hear of it; or never granted, and there is nothing to heal.
		k.state.Memory.Lease = k.state.Memory.Lease.Release(r.WorkflowID, r.RunID)
		k.state.Released = append(k.state.Released,
			lease.Claim{WorkflowID: r.WorkflowID, RunID: r.RunID, Ask: r.Ask, Finishing: true})
	}
	delete(k.state.Told, r.RunID)
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
		CloseBudgets: k.observed.Settings.ManagePodBudgets && k.state.Conflict == "",
	})
}

func (k *keeper) endWatch() {
	if k.watch != nil {
		k.stopWatch()
		k.watch = nil
	}
}

// hearWatch takes in what the watch saw, and tells whether that is a reason to look. What the keeper itself did to
// noout is none, and then the watch goes on.
func (k *keeper) hearWatch(ctx workflow.Context, f workflow.Future) (reason bool) {
	k.watch = nil
	var w activities.Watched
	if err := f.Get(ctx, &w); err != nil {
		// The watch gives up only after a month; nothing that it said counts any longer.
		k.state.Watched = activities.Watched{}
		return true
	}
	reason = !w.OnlyNoout(k.watched(), k.noout)
	k.state.Watched, k.state.WatchedAsOf = w, k.watchAsOf
	if w.Unavailable != "" {
		k.doubt(ctx, doubt.Mute, w.Unavailable)
	}
	k.noteLived(w)
	if !reason {
		k.startWatch(ctx)
	}
	return reason
}

// notify tells every job what has changed about its claim.
func (k *keeper) notify(ctx workflow.Context) {
	now := workflow.Now(ctx)
	k.reworded = 0
	for _, c := range k.state.Memory.Lease.Holders {
		n := LeaseNotice{
			State: LeaseGranted, Token: c.Token, Epoch: k.observed.Seen.View.ChangeEpoch,
			Alive: k.state.Answered, Since: c.Granted, Stops: c.Stops,
		}
		last := k.state.Told[c.RunID]
		switch d, refused := k.said(), k.refusedFor(c.NooutHosts); {
		case c.Reserved():
			n.State, n.WaitsFor = LeaseReserved, c.WaitsFor
		case c.Finishing || last.State == LeaseGranted && last.Token == c.Token:
		case refused != "":
			n.State, n.WaitsFor = LeaseWaiting, refused
		case !budget.Serves(k.input(ctx), d, c):
			// Between the grant and its telling somebody else was hurt: what it promises is not in place. No budget keeps a
			// rollout from what it was told that it may.
			n.State, n.WaitsFor = LeaseWaiting, d.Message
		}
		if c.Finishing {
			in := k.input(ctx)
			n.State = LeaseHealing
			if a := budget.Healed(in, c); !a.OK {
				n.WaitsFor = a.Reason
			}
		}
		k.tell(ctx, c, n)
	}
	for _, c := range k.state.Memory.Lease.Queue {
		k.tell(ctx, c, LeaseNotice{State: LeaseWaiting, WaitsFor: c.WaitsFor, Since: c.Requested})
	}
	k.tellReleased(ctx)
	for _, c := range k.revoked {
		k.tell(ctx, c, LeaseNotice{State: LeaseRevoked, Since: now, WaitsFor: c.WaitsFor})
		delete(k.state.Told, c.RunID)
	}
	k.revoked = nil
	k.sendAll(ctx)
}

// notifyReleased tells those jobs alone whose claim is over.
func (k *keeper) notifyReleased(ctx workflow.Context) {
	k.tellReleased(ctx)
	k.sendAll(ctx)
}

func (k *keeper) tellReleased(ctx workflow.Context) {
	for _, c := range k.state.Released {
		state := LeaseReleased
		if !c.Finishing {
			state = LeaseParked
		}
		k.tell(ctx, c, LeaseNotice{State: state, Since: workflow.Now(ctx)})
		delete(k.state.Told, c.RunID)
	}
	k.state.Released = nil
}

// tell puts a notice into the outbox if it says anything new.
func (k *keeper) tell(ctx workflow.Context, c lease.Claim, n LeaseNotice) {
	id, now := c.RunID, workflow.Now(ctx)
	n.WaitsFor = storage.Clip(n.WaitsFor, mostReason)
	last, told := k.state.Told[id]
	to := Told{State: n.State, Token: n.Token, Ask: c.Ask, Words: words(n.WaitsFor), At: now, First: now}
	if told && last.State == to.State && last.Token == to.Token && last.Ask == to.Ask {
		if last.Words == to.Words {
			return
		}
		if next := last.next(); now.Before(next) {
			k.withhold(next)
			return
		}
		if k.reworded++; k.reworded > rewordedAtOnce {
			k.withhold(now.Add(rewordedEvery))
			return
		}
		to.First = last.First
	}
	// Without a run ID: a job that continued as new has another one by now. The notice says whose claim it is about.
	n.RunID, n.Ask = c.RunID, c.Ask
	k.outbox = append(k.outbox, outgoing{claim: c, notice: n, told: to})
}

func claimID(c lease.Claim) string { return c.WorkflowID + "@" + c.RunID }

// keepTold forgets what those were told who have no claim any more.
func (k *keeper) keepTold() {
	l := k.state.Memory.Lease
	kept := map[string]Told{}
	for _, c := range slices.Concat(l.Holders, l.Queue) {
		if t, told := k.state.Told[c.RunID]; told {
			kept[c.RunID] = t
		}
	}
	k.state.Told = kept
}

func sameMemory(a, b activities.Memory) bool { return reflect.DeepEqual(a, b) }
