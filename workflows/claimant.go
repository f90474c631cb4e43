package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// claimant is a job's side of its talk with the keeper, for jobs that hold the lease again and again, each time for
// another failure domain. One claim is made at a time; what follows it may be asked for while the storage heals.
type claimant struct {
	cluster   storage.ClusterKey
	claim     lease.Claim
	token     int64     // of the grant; 0: not held
	epoch     int64     // of the storage cluster's map that the grant rests on
	alive     time.Time // when all OSDs elsewhere were known to live
	asked     bool      // the keeper may know of the claim
	finishing bool      // the work is done: as soon as the keeper is told it may take the lease back at any time
	told      bool      // that it is done
	// next is what the keeper was told to take for our claim when it takes this one back. Once said it is not taken back or
	// changed: nobody could tell whether it has become our claim already.
	next *lease.Claim
	// unsure: our claim was to be the next one, and the keeper did not say that it is.
	unsure    bool
	why       string // why the claim is not granted, as far as we were told
	notices   workflow.ReceiveChannel
	reminders int
}

// ClaimState is what a job hands on to its next run about its claim. The fields are the claimant's.
type ClaimState struct {
	Cluster   storage.ClusterKey `json:"cluster"`
	Claim     lease.Claim        `json:"claim"`
	Token     int64              `json:"token,omitempty"`
	Epoch     int64              `json:"epoch,omitempty"`
	Asked     bool               `json:"asked,omitempty"`
	Finishing bool               `json:"finishing,omitempty"`
	Told      bool               `json:"told,omitempty"`
	Next      *lease.Claim       `json:"next,omitempty"`
	Unsure    bool               `json:"unsure,omitempty"`
	Why       string             `json:"why,omitempty"`
	Reminders int                `json:"reminders,omitempty"`
}

func newClaimant(ctx workflow.Context, s ClaimState) *claimant {
	return &claimant{
		cluster: s.Cluster, claim: s.Claim, token: s.Token, epoch: s.Epoch, asked: s.Asked, finishing: s.Finishing, told: s.Told, next: s.Next,
		unsure: s.Unsure, why: s.Why, reminders: s.Reminders, notices: workflow.GetSignalChannel(ctx, SignalLease),
	}
}

// state is what the next run has to know. Notices that have come are taken in before, or they would be lost.
func (c *claimant) state() ClaimState {
	c.lost()
	return ClaimState{
		Cluster: c.cluster, Claim: c.claim, Token: c.token, Epoch: c.epoch, Asked: c.asked, Finishing: c.finishing, Told: c.told, Next: c.next,
		Unsure: c.unsure, Why: c.why, Reminders: c.reminders,
	}
}

func (c *claimant) ref(ctx workflow.Context) LeaseRef {
	info := workflow.GetInfo(ctx)
	return LeaseRef{WorkflowID: info.WorkflowExecution.ID, RunID: info.FirstRunID, Ask: c.claim.Ask, Next: c.next}
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

// waitsFor tells whether exactly this was asked for, and is not granted yet.
func (c *claimant) waitsFor(want lease.Claim) bool {
	return c.asked && !c.finishing && c.token == 0 && c.claim.Domain == want.Domain && slices.Equal(c.claim.Daemons, want.Daemons)
}

// tellAfter is how long a claim may take before anybody is told that it is waited for: mostly it is granted at once.
const tellAfter = 2 * time.Second

// acquire asks for the lease, if that was not done, and waits until it is granted, until stop says that it is not wanted any
// more, or until the context ends. waits hears why it is not granted; and "", if that takes a while and the keeper says nothing.
func (c *claimant) acquire(ctx workflow.Context, want lease.Claim, stop func() bool, waits func(string)) (granted bool, err error) {
	ask, told := c.unsure, c.why != ""
	if !c.waitsFor(want) {
		*c = claimant{cluster: c.cluster, claim: c.following(ctx, want), asked: true, notices: c.notices}
		ask, told = true, false
	}
	if told {
		waits(c.why)
	}
	for {
		if ask {
			// Asking again keeps the place in the queue, and brings back a claim that the keeper never came to write down.
			if _, err := call(persistent(ctx, "ask for the lease"), draining.RequestLease, activities.LeaseInput{Cluster: c.cluster, Claim: c.claim}); err != nil {
				return false, err
			}
			c.unsure = false
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
	want.Ask = max(c.claim.Ask+1, workflow.Now(ctx).UnixMilli())
	return want
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

// notice receives the keeper's next word about our claim, or about the next one, which then is ours. heard is false when none
// came for long, or stop came true.
func (c *claimant) notice(ctx workflow.Context, long time.Duration, then string, stop func() bool) (n LeaseNotice, heard bool, err error) {
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

// take takes in what the keeper said, and tells whether it is about us. A notice about the claim before, or about one that was
// given up, may come late; to take its grant for this one's would be to act under a token that does not count any more.
func (c *claimant) take(n LeaseNotice) bool {
	if !c.asked || n.RunID != c.claim.RunID {
		return false
	}
	switch {
	case n.Ask == c.claim.Ask:
	case c.next != nil && n.Ask == c.next.Ask:
		c.moveOn()
	default:
		return false
	}
	switch n.State {
	case LeaseGranted:
		if !c.finishing {
			c.token, c.epoch, c.alive, c.why = n.Token, n.Epoch, n.Alive, ""
		}
	case LeaseReleased, LeaseParked, LeaseRevoked:
		c.token, c.asked = 0, false
		if c.next != nil { // it is over, or nearly so, that the keeper learns what we want next
			c.moveOn()
			c.unsure = true
		}
	case LeaseWaiting:
		c.why = n.WaitsFor
	case LeaseHealing:
	}
	return true
}

// moveOn makes the next claim ours.
func (c *claimant) moveOn() {
	*c = claimant{cluster: c.cluster, claim: *c.next, asked: true, notices: c.notices}
}

// lost takes in what the keeper said meanwhile, and tells whether the lease is no longer held.
func (c *claimant) lost() bool {
	for c.notices.Len() > 0 {
		var n LeaseNotice
		if c.notices.ReceiveAsync(&n) {
			c.take(n)
		}
	}
	return c.token == 0
}

// finish says that the work is done: the keeper takes the lease back when it has seen the storage whole.
func (c *claimant) finish(ctx workflow.Context) error {
	if !c.asked {
		return nil
	}
	c.finishing, c.told = true, true
	return c.signal(ctx, SignalFinishLease)
}

// finishFor says the same, and what is wanted next.
func (c *claimant) finishFor(ctx workflow.Context, want lease.Claim) error {
	if !c.asked || c.next != nil {
		return nil
	}
	next := c.following(ctx, want)
	c.next = &next
	return c.finish(ctx)
}

// healed waits until the keeper has taken the lease back, or has gone on to the next claim, until stop says that there is more
// to do, or until nothing was heard for long.
func (c *claimant) healed(ctx workflow.Context, stop func() bool, waits func(string)) (over bool, err error) {
	if c.asked && (!c.told || c.reminders > 0) {
		if err := c.finish(ctx); err != nil {
			return false, err
		}
	}
	for c.asked && c.finishing {
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

// release gives the lease, or the place in the queue, back at once. The keeper takes it back anyway when the job has ended.
func (c *claimant) release(ctx workflow.Context) {
	if !c.asked {
		return
	}
	c.token, c.asked, c.next = 0, false, nil
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
