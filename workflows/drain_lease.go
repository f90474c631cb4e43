package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/lease"
)

// This file is a drain's talk with the keeper: it asks for the lease, hears what becomes of its claim, and says when its
// work is done.

// inbox is what the keeper has said and the drain has not read: it reads only where it waits for a word.
type inbox struct {
	unread []LeaseNotice // by the run before
	comes  workflow.ReceiveChannel
}

func (b *inbox) len() int { return len(b.unread) + b.comes.Len() }

// next is the oldest word. readable is false when there is none, or one that nobody can read.
func (b *inbox) next() (n LeaseNotice, readable bool) {
	if len(b.unread) == 0 {
		return n, b.comes.ReceiveAsync(&n)
	}
	n, b.unread = b.unread[0], b.unread[1:]
	return n, true
}

// all empties it, for the next run to read.
func (b *inbox) all() []LeaseNotice {
	unread := b.unread
	for b.comes.Len() > 0 {
		var n LeaseNotice
		if b.comes.ReceiveAsync(&n) {
			unread = append(unread, n)
		}
	}
	return unread
}

// acquireLease waits until the keeper grants the node's failure domain. By then noout is set on the node and the domain
// is open for eviction.
func (d *drain) acquireLease(ctx workflow.Context) error {
	ask := !d.goesOnIn(PhaseLease) // the run before did
	d.job.enter(ctx, PhaseLease)
	if d.asked.IsZero() {
		d.asked = workflow.Now(ctx)
	}
	reason := d.in.Reason
	if reason == "" {
		reason = "drain of " + d.in.Node
		if d.in.Observe {
			reason = d.in.Node + " is drained from outside"
		}
	}
	info := workflow.GetInfo(ctx)
	d.claim = lease.Claim{
		WorkflowID: info.WorkflowExecution.ID, RunID: info.FirstRunID, Domain: d.target.Domain, Node: d.target.Node,
		Reason: reason, Priority: jobs.DrainNode.Priority, Observing: d.observing, NooutHosts: d.target.Hosts,
	}
	if d.target.Gone {
		d.claim.NooutHosts = nil // nobody comes back to what noout would preserve
	}
	wait := "the lease of " + d.target.Domain.String()
	d.job.waitFor(ctx, wait)
	since := d.job.Since
	for {
		// Asking again keeps the place in the queue, and brings back a claim that the keeper never came to write down.
		if ask {
			if _, err := call(persistent(ctx, "ask for the lease"), draining.RequestLease, activities.LeaseInput{Cluster: d.target.Cluster, Claim: d.claim}); err != nil {
				return err
			}
		}
		ask = true
		for {
			n, ok, err := d.notice(ctx, d.backEarly)
			if err != nil {
				return err
			}
			if d.backEarly() {
				return nil
			}
			if !ok {
				break // nothing was heard for long: ask again
			}
			switch n.State {
			case LeaseGranted:
				d.token, d.guarded, d.stops = n.Token, true, n.Stops
				d.result.Waited += workflow.Now(ctx).Sub(d.asked)
				d.asked = time.Time{}
				return nil
			case LeaseRevoked:
				d.asked = time.Time{}
				return d.reacquire(ctx)
			case LeaseWaiting, LeaseHealing, LeaseReleased, LeaseParked:
				d.job.elaborate(ctx, because(wait, n.WaitsFor), since)
			}
		}
	}
}

// reacquire begins anew after the lease was revoked: the node may belong to another failure domain now, or to none that
// is looked after, which is then the reason why the drain ends.
func (d *drain) reacquire(ctx workflow.Context) error {
	before := d.target
	if err := d.resolve(ctx); err != nil {
		return err
	}
	// Whose the cordon is, and which node it was, was settled when the drain began.
	d.target.Cordoned, d.target.UID, d.target.BootID = before.Cordoned, before.UID, before.BootID
	d.token = 0
	return d.acquireLease(ctx)
}

// backEarly: the node that somebody else drains was back before we were granted the lease.
func (d *drain) backEarly() bool {
	return d.token == 0 && d.in.Observe && d.back != nil && d.back.IsReady()
}

// A drain that hears nothing from the keeper for this long asks again, then after twice as long, and so on. A keeper that
// was terminated in the wrong moment has forgotten what it had not written down yet; that is rare, and history is finite.
const (
	remindAfter    = 2 * time.Minute
	remindAfterMax = 2 * time.Hour
)

// notice receives the next word of the keeper about our claim. ok is false when none came for long, when one came that
// nobody can read, or when enough came true. It never blocks on the channel itself: Receive passes
// over a signal that it cannot decode and waits for the next, and then neither the timer nor `abort` would be heard. When
// all is heard and the history is long, it continues as new.
func (d *drain) notice(ctx workflow.Context, enough func() bool) (n LeaseNotice, ok bool, err error) {
	timerCtx, stopTimer := workflow.WithCancel(ctx)
	defer stopTimer()
	late := workflow.NewTimerWithOptions(timerCtx, min(remindAfter<<min(d.reminders, 8), remindAfterMax), workflow.TimerOptions{Summary: "remind the keeper"})
	over := func() bool { return late.IsReady() || enough() }
	unreadable := false
	err = workflow.Await(ctx, func() bool {
		for !ok && !unreadable && d.notices.len() > 0 {
			var readable bool
			n, readable = d.notices.next()
			unreadable = !readable
			ok = readable && n.RunID == workflow.GetInfo(ctx).FirstRunID
		}
		return ok || unreadable || over() || full(ctx)
	})
	switch {
	case err != nil:
		return LeaseNotice{}, false, err
	case ok:
		d.reminders = 0
		return n, true, nil
	case unreadable || over():
		d.reminders++
		return LeaseNotice{}, false, nil
	}
	return LeaseNotice{}, false, d.continueAsNew(ctx)
}

// finish tells the keeper that our work is done. One that is not running is started by asking for what we hold already.
func (d *drain) finish(ctx workflow.Context, nodeGone bool) error {
	info := workflow.GetInfo(ctx)
	ref := LeaseRef{WorkflowID: info.WorkflowExecution.ID, RunID: info.FirstRunID, NodeGone: nodeGone}
	err := workflow.SignalExternalWorkflow(ctx, KeeperID(d.target.Cluster), "", SignalFinishLease, ref).Get(ctx, nil)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if _, err := call(persistent(ctx, "start the keeper again"), draining.RequestLease, activities.LeaseInput{Cluster: d.target.Cluster, Claim: d.claim}); err != nil {
		return err
	}
	return workflow.SignalExternalWorkflow(ctx, KeeperID(d.target.Cluster), "", SignalFinishLease, ref).Get(ctx, nil)
}
