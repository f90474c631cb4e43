package workflows

import (
	"errors"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is how a job talks with keepers, and how it holds their leases.

// errLost ends the work under a lease that was taken away. The job decides what comes next.
var errLost = errors.New("the lease was taken away")

// claimant is a job's side of its talk with one keeper. One claim is made at a time; what follows it may be asked for
// while the storage heals.
type claimant struct {
	ClaimState
	job *job
}

func (c *claimant) ref(ctx workflow.Context) LeaseRef {
	info := workflow.GetInfo(ctx)
	return LeaseRef{
		WorkflowID: info.WorkflowExecution.ID, RunID: info.FirstRunID, Ask: c.Claim.Ask,
		NodeGone: c.NodeGone, Next: c.Next,
	}
}

const (
	// tellAfter is how long a claim may take before anybody is told that it is waited for: mostly it is granted at once.
	tellAfter = 2 * time.Second
	// A job that hears nothing from the keeper for this long asks again, then after twice as long, and so on. A keeper
	// that was terminated in the wrong moment has forgotten what it had not written down yet; that is rare, and history is
	// finite.
	remindAfter    = 2 * time.Minute
	remindAfterMax = 2 * time.Hour
)

// acquire asks for the lease, if that was not done, and waits until it is granted, or until stop says that it is not
// wanted any more. It calls told when the status says why it is not granted, or, after a while, that it is waited for.
func (c *claimant) acquire(
	ctx workflow.Context, want lease.Claim, stop func() bool, told func(),
) (granted bool, err error) {
	if c.job.listen(); c.covers(want) {
		return true, nil
	}
	c.job.enter(ctx, PhaseLease)
	wait := "the lease of " + c.where(want.Domain)
	if len(want.Daemons) > 0 {
		wait += " for " + strings.Join(want.Daemons, ", ")
	}
	c.job.waitFor(ctx, wait)
	since := c.job.Since
	waits := func(why string) {
		c.job.elaborate(ctx, because(wait, why)+c.job.inReserve(c), since)
		told()
	}
	switch {
	case want.Ready && c.Stage == claimReserved:
		c.Claim.Ready, c.Stage = true, claimUnsure // until the keeper is told
	case !c.waitsFor(want):
		c.begin(c.following(ctx, want))
		c.Stage = claimUnsure // until it is asked for
	}
	if c.Why != "" {
		waits(c.Why)
	}
	for ask, patient := c.Stage == claimUnsure, c.Why != ""; ; {
		if ask {
			if err := c.ask(ctx); err != nil {
				return false, err
			}
		}
		n, err := c.word(ctx, patient, stop)
		if err != nil || stop() {
			return false, err
		}
		ask = false
		switch n.State {
		case "": // nothing was heard for long
			if ask = patient; !patient {
				waits("")
			}
			patient = true
		case LeaseGranted:
			return true, nil
		case LeaseRevoked, LeaseReleased, LeaseParked:
			return false, nil
		case LeaseReserved:
			if !want.Ready {
				return true, nil
			}
			waits(n.WaitsFor)
			patient = true
		case LeaseWaiting, LeaseHealing:
			if want.Ready && n.Token == 0 {
				return false, nil // it was taken back while the keeper was told that the job is ready, and queues anew
			}
			waits(n.WaitsFor)
			patient = true
		}
	}
}

// ask queues the claim. Asking again keeps the place in the queue, and brings back a claim that the keeper never came
// to write down.
func (c *claimant) ask(ctx workflow.Context) error {
	if _, err := perform(persistent(ctx, "ask for the lease"), c.job, draining.RequestLease,
		activities.LeaseInput{Cluster: c.Cluster, Claim: c.Claim}); err != nil {
		return err
	}
	if c.Stage == claimUnsure {
		c.Stage = claimAsked
	}
	return nil
}

// following is a claim that comes after all that the job has made. Ask rises over continue-as-new, too.
func (c *claimant) following(ctx workflow.Context, want lease.Claim) lease.Claim {
	ref := c.ref(ctx)
	want.WorkflowID, want.RunID = ref.WorkflowID, ref.RunID
	want.Ask = workflow.Now(ctx).UnixMilli()
	for _, other := range c.job.claims {
		want.Ask = max(want.Ask, other.Claim.Ask+1)
	}
	return want
}

// word is the keeper's next word about the claim, or about the next one, which then is the claim. It is waited for only
// a moment unless patient. The zero notice: none came for long, or stop came true.
func (c *claimant) word(ctx workflow.Context, patient bool, stop func() bool) (n LeaseNotice, err error) {
	long, then := tellAfter, "tell that we wait"
	if patient {
		long, then = min(remindAfter<<min(c.Reminders, 8), remindAfterMax), "remind the keeper"
		c.Reminders++
	}
	_, err = c.job.awaitAtMost(ctx, long, then, func() bool {
		for about, next := c.job.hear(); about != nil; about, next = c.job.hear() {
			if about == c {
				n, c.Reminders = next, 0
				return true
			}
		}
		return stop()
	})
	return n, err
}

// tellDone says that the work is done: the keeper takes the lease back when it has seen the storage whole.
func (c *claimant) tellDone(ctx workflow.Context) error {
	if c.Stage == claimFree {
		return nil
	}
	c.Stage = claimDone
	if err := c.signal(ctx, SignalFinishLease); err != nil {
		return err
	}
	c.Stage = claimTold
	return nil
}

// finishFor says the same, and what is wanted next.
func (c *claimant) finishFor(ctx workflow.Context, want lease.Claim) error {
	if c.Stage == claimFree || c.Next != nil {
		return nil
	}
	next := c.following(ctx, want)
	c.Next = &next
	return c.tellDone(ctx)
}

// whole tells the keeper that the work is done, and waits until it has seen the storage whole and taken the lease back,
// or has gone on to the next claim, until stop says that there is more to do, or until nothing was heard for long. It
// calls told before the status says how far that is.
func (c *claimant) whole(ctx workflow.Context, stop func() bool, told func()) (over bool, err error) {
	if c.Stage == claimFree {
		return true, nil
	}
	wait := "the storage in " + c.where(c.Claim.Domain) + " to be whole again"
	if c.job.Phase != PhaseHeal || !strings.HasPrefix(c.job.WaitsFor, wait) {
		c.job.enter(ctx, PhaseHeal)
		c.job.waitFor(ctx, wait)
	}
	since := c.job.Since
	if c.job.several() && c.Stage == claimTold && c.Why != "" { // said while another cluster was waited for
		c.job.elaborate(ctx, because(wait, c.Why), since)
	}
	if c.Stage != claimTold || c.Reminders > 0 {
		if err := c.tellDone(ctx); err != nil {
			return false, err
		}
	}
	for c.finished() {
		n, err := c.word(ctx, true, stop)
		if err != nil || n.State == "" {
			return false, err
		}
		if n.State == LeaseHealing {
			told()
			c.job.elaborate(ctx, because(wait, n.WaitsFor), since)
		}
	}
	return true, nil
}

// release gives the lease, or the place in the queue, back at once. The keeper takes it back anyway when the job has
// ended.
func (c *claimant) release(ctx workflow.Context) {
	if c.Stage == claimFree {
		return
	}
	c.end(LeaseReleased)
	if err := c.signal(ctx, SignalReleaseLease); err != nil {
		workflow.GetLogger(ctx).Error("cannot release the lease; the keeper takes it back when this job has ended",
			"error", err)
	}
}

// signal tells the keeper something. One that is not running is started by asking for what we hold already.
func (c *claimant) signal(ctx workflow.Context, name string) error {
	err := workflow.SignalExternalWorkflow(ctx, KeeperID(c.Cluster), "", name, c.ref(ctx)).Get(ctx, nil)
	if err == nil || ctx.Err() != nil || name == SignalReleaseLease {
		return err
	}
	if _, err := perform(persistent(ctx, "start the keeper again"), c.job, draining.RequestLease,
		activities.LeaseInput{Cluster: c.Cluster, Claim: c.Claim}); err != nil {
		return err
	}
	return workflow.SignalExternalWorkflow(ctx, KeeperID(c.Cluster), "", name, c.ref(ctx)).Get(ctx, nil)
}

// where names a failure domain, and its storage cluster if there is another one that could be meant.
func (c *claimant) where(d storage.FailureDomain) string {
	if c.job.several() {
		return d.String() + " of " + c.Cluster.String()
	}
	return d.String()
}

// because adds a reason, if there is one.
func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}
