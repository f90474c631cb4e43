package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/lease"
)

// claimant is a job's side of its talk with the keeper. One claim is made at a time; what follows it may be asked for
// while the storage heals.
type claimant struct {
	ClaimState
	notices workflow.ReceiveChannel
}

func newClaimant(ctx workflow.Context, s ClaimState) *claimant {
	return &claimant{ClaimState: s, notices: workflow.GetSignalChannel(ctx, SignalLease)}
}

// state is what the next run has to know. Notices that have come are taken in before, or they would be lost.
func (c *claimant) state() ClaimState {
	c.listen()
	return c.ClaimState
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

// acquire asks for the lease, if that was not done, and waits until it is granted, until stop says that it is not
// wanted any more, or until the context ends. waits hears why it is not granted; and "", if that takes a while and the
// keeper says nothing.
func (c *claimant) acquire(
	ctx workflow.Context, want lease.Claim, stop func() bool, waits func(string),
) (granted bool, err error) {
	if c.listen(); c.covers(want) {
		return true, nil
	}
	ask, told := c.Stage == claimUnsure, c.Why != ""
	if !c.waitsFor(want) {
		c.begin(c.following(ctx, want))
		ask, told = true, false
	}
	if told {
		waits(c.Why)
	}
	for {
		if ask {
			// Asking again keeps the place in the queue, and brings back a claim that the keeper never came to write down.
			if _, err := call(persistent(ctx, "ask for the lease"), draining.RequestLease,
				activities.LeaseInput{Cluster: c.Cluster, Claim: c.Claim}); err != nil {
				return false, err
			}
			if c.Stage == claimUnsure {
				c.Stage = claimAsked
			}
		}
		n, _, err := c.word(ctx, told, stop)
		if err != nil || stop() {
			return false, err
		}
		ask = false
		switch n.State {
		case "": // nothing was heard for long
			if ask = told; !told {
				waits("")
			}
			told = true
		case LeaseGranted:
			return true, nil
		case LeaseRevoked, LeaseReleased, LeaseParked:
			return false, nil
		case LeaseWaiting, LeaseHealing:
			waits(n.WaitsFor)
			told = true
		}
	}
}

// following is a claim that comes after the present one. Ask rises over continue-as-new, too.
func (c *claimant) following(ctx workflow.Context, want lease.Claim) lease.Claim {
	ref := c.ref(ctx)
	want.WorkflowID, want.RunID = ref.WorkflowID, ref.RunID
	want.Ask = max(c.Claim.Ask+1, workflow.Now(ctx).UnixMilli())
	return want
}

// word is the keeper's next word about our claim, waited for only a moment unless patient.
func (c *claimant) word(ctx workflow.Context, patient bool, stop func() bool) (n LeaseNotice, heard bool, err error) {
	if !patient {
		return c.notice(ctx, tellAfter, "tell that we wait", stop)
	}
	n, heard, err = c.notice(ctx, min(remindAfter<<min(c.Reminders, 8), remindAfterMax), "remind the keeper", stop)
	if c.Reminders++; heard {
		c.Reminders = 0
	}
	return n, heard, err
}

// notice receives the keeper's next word about our claim, or about the next one, which then is ours. heard is false
// when none came for long, or stop came true.
func (c *claimant) notice(
	ctx workflow.Context, long time.Duration, then string, stop func() bool,
) (n LeaseNotice, heard bool, err error) {
	_, err = awaitAtMost(ctx, long, then, func() bool {
		for c.notices.Len() > 0 {
			var next LeaseNotice
			if c.notices.ReceiveAsync(&next) && c.take(next) {
				n = next
				return true
			}
		}
		return stop()
	})
	return n, n.State != "", err
}

// listen takes in what the keeper has said meanwhile.
func (c *claimant) listen() {
	for c.notices.Len() > 0 {
		var n LeaseNotice
		if c.notices.ReceiveAsync(&n) {
			c.take(n)
		}
	}
}

// tellDone says that the work is done: the keeper takes the lease back when it has seen the storage whole.
func (c *claimant) tellDone(ctx workflow.Context) error {
	if c.Stage == claimFree {
		return nil
	}
	c.Stage = claimTold
	return c.signal(ctx, SignalFinishLease)
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

// healed waits until the keeper has taken the lease back, or has gone on to the next claim, until stop says that there
// is more to do, or until nothing was heard for long.
func (c *claimant) healed(ctx workflow.Context, stop func() bool, waits func(string)) (over bool, err error) {
	if c.Stage != claimTold || c.Reminders > 0 {
		if err := c.tellDone(ctx); err != nil {
			return false, err
		}
	}
	for c.finished() {
		n, heard, err := c.word(ctx, true, stop)
		if err != nil || !heard {
			return false, err
		}
		if n.State == LeaseHealing {
			waits(n.WaitsFor)
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
	if _, err := call(persistent(ctx, "start the keeper again"), draining.RequestLease,
		activities.LeaseInput{Cluster: c.Cluster, Claim: c.Claim}); err != nil {
		return err
	}
	return workflow.SignalExternalWorkflow(ctx, KeeperID(c.Cluster), "", name, c.ref(ctx)).Get(ctx, nil)
}
