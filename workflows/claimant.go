package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// claimant is a job's side of its talk with the keeper, for jobs that hold the lease again and again, each time for
// another failure domain. At most one claim is made at a time.
type claimant struct {
	cluster   storage.ClusterKey
	claim     lease.Claim
	token     int64 // of the grant; 0: not held
	epoch     int64 // of the storage cluster's map that the grant rests on
	asked     bool  // the keeper may know of the claim
	finishing bool  // the keeper was told that the work is done, and may take the lease back at any time
	notices   workflow.ReceiveChannel
	reminders int
}

func newClaimant(ctx workflow.Context) *claimant {
	return &claimant{notices: workflow.GetSignalChannel(ctx, SignalLease)}
}

func (c *claimant) ref(ctx workflow.Context) LeaseRef {
	info := workflow.GetInfo(ctx)
	return LeaseRef{WorkflowID: info.WorkflowExecution.ID, RunID: info.FirstRunID, Ask: c.claim.Ask}
}

// holds tells whether the lease is held for this domain and all of these daemons.
func (c *claimant) holds(want lease.Claim) bool {
	if c.token == 0 || c.finishing || c.claim.Domain != want.Domain {
		return false
	}
	for _, d := range want.Daemons {
		if !c.claim.Concerns(storage.Daemon{Name: d}) {
			return false
		}
	}
	return true
}

// tellAfter is how long a claim may take before anybody is told that it is waited for: mostly it is granted at once.
const tellAfter = 2 * time.Second

// acquire asks for the lease and waits until it is granted, until stop says that it is not wanted any more, or until the
// context ends. waits hears why it is not granted; and "", if that takes a while and the keeper says nothing.
func (c *claimant) acquire(ctx workflow.Context, want lease.Claim, stop func() bool, waits func(string)) (granted bool, err error) {
	ref := c.ref(ctx)
	want.WorkflowID, want.RunID = ref.WorkflowID, ref.RunID
	want.Ask = max(c.claim.Ask+1, workflow.Now(ctx).UnixMilli()) // it rises over continue-as-new, too
	c.claim, c.token, c.asked, c.finishing = want, 0, true, false
	for told, ask := false, true; ; {
		if ask {
			// Asking again keeps the place in the queue, and brings back a claim that the keeper never came to write down.
			if _, err := call(persistent(ctx, "ask for the lease"), draining.RequestLease, activities.LeaseInput{Cluster: c.cluster, Claim: want}); err != nil {
				return false, err
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
			c.token, c.epoch = n.Token, n.Epoch
			return true, nil
		case LeaseRevoked:
			c.asked = false
			return false, nil
		case LeaseWaiting, LeaseHealing, LeaseReleased, LeaseParked:
			waits(n.WaitsFor)
			told = true
		}
	}
}

// word is the keeper's next word about our claim, waited for only a moment unless patient.
func (c *claimant) word(ctx workflow.Context, patient bool, stop func() bool) (n LeaseNotice, heard bool, err error) {
	if !patient {
		return c.notice(ctx, tellAfter, "tell that we wait", stop)
	}
	n, heard, err = c.notice(ctx, min(remindAfter<<min(c.reminders, 8), remindAfterMax), "remind the keeper", stop)
	if c.reminders++; heard {
		c.reminders = 0
	}
	return n, heard, err
}

// notice receives the keeper's next word about our claim. heard is false when none came for long, or stop came true.
func (c *claimant) notice(ctx workflow.Context, long time.Duration, then string, stop func() bool) (n LeaseNotice, heard bool, err error) {
	_, err = awaitAtMost(ctx, long, then, func() bool {
		for c.notices.Len() > 0 {
			var next LeaseNotice
			if c.notices.ReceiveAsync(&next) && c.concerns(next) {
				n = next
				return true
			}
		}
		return stop()
	})
	return n, n.State != "", err
}

// concerns tells whether a notice is about the present claim. One about the claim before may come late; to take its grant for
// this one's would be to act under a token that does not count any more.
func (c *claimant) concerns(n LeaseNotice) bool {
	return n.RunID == c.claim.RunID && n.Ask == c.claim.Ask
}

// lost takes in what the keeper said meanwhile, and tells whether the lease is no longer held.
func (c *claimant) lost() bool {
	for c.notices.Len() > 0 {
		var n LeaseNotice
		if !c.notices.ReceiveAsync(&n) || !c.concerns(n) {
			continue
		}
		switch n.State {
		case LeaseParked, LeaseRevoked, LeaseReleased:
			c.token, c.asked = 0, false
		case LeaseWaiting, LeaseGranted, LeaseHealing:
		}
	}
	return c.token == 0
}

// finish says that the work is done, and waits until the keeper has seen the storage whole and taken the lease back, until
// stop says that there is more to do, or until nothing was heard for long.
func (c *claimant) finish(ctx workflow.Context, stop func() bool, waits func(string)) (released bool, err error) {
	if !c.asked {
		return true, nil
	}
	if err := c.signal(ctx, SignalFinishLease); err != nil {
		return false, err
	}
	c.finishing = true
	for {
		n, heard, err := c.word(ctx, true, stop)
		if err != nil || !heard {
			return false, err
		}
		switch n.State {
		case LeaseReleased, LeaseParked, LeaseRevoked:
			c.token, c.asked = 0, false
			return true, nil
		case LeaseHealing:
			waits(n.WaitsFor)
		case LeaseWaiting, LeaseGranted: // sent before the keeper heard that we are done
		}
	}
}

// release gives the lease, or the place in the queue, back at once. The keeper takes it back anyway when the job has ended.
func (c *claimant) release(ctx workflow.Context) {
	if !c.asked {
		return
	}
	c.token, c.asked = 0, false
	if err := c.signal(ctx, SignalReleaseLease); err != nil {
		workflow.GetLogger(ctx).Error("cannot release the lease; the keeper takes it back when this job has ended", "error", err)
	}
}

// signal tells the keeper something. One that is not running is started by asking for what we hold already.
func (c *claimant) signal(ctx workflow.Context, name string) error {
	err := workflow.SignalExternalWorkflow(ctx, KeeperID(c.cluster), "", name, c.ref(ctx)).Get(ctx, nil)
	if err == nil || ctx.Err() != nil || name == SignalReleaseLease {
		return err
	}
	if _, err := call(persistent(ctx, "start the keeper again"), draining.RequestLease, activities.LeaseInput{Cluster: c.cluster, Claim: c.claim}); err != nil {
		return err
	}
	return workflow.SignalExternalWorkflow(ctx, KeeperID(c.cluster), "", name, c.ref(ctx)).Get(ctx, nil)
}
