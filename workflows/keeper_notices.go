package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/internal/lease"
)

// This file sends notices to many jobs. One after the other, each would cost the keeper a round through Temporal, and
// what is to open would wait until hundreds of jobs have heard why they wait.

// outgoing is a notice that is to be sent.
type outgoing struct {
	claim  lease.Claim
	notice LeaseNotice
	told   Told
}

// noticesAtOnce bounds what is under way: Temporal takes 2,000 at a time.
const noticesAtOnce = 100

// Who waits and hears that it is for another reason is in no hurry, but every notice wakes a job. Hundreds of them at
// once keep the processors from whoever has to close in that moment. So they go out a few at a time.
const (
	rewordedAtOnce = 20
	rewordedEvery  = 500 * time.Millisecond
)

// withhold has a job hear later.
func (k *keeper) withhold(until time.Time) {
	if k.untold.IsZero() || until.Before(k.untold) {
		k.untold = until
	}
}

// sendAll empties the outbox.
func (k *keeper) sendAll(ctx workflow.Context) {
	for len(k.outbox) > 0 {
		n := nextBatch(k.outbox)
		batch := k.outbox[:n]
		k.outbox = k.outbox[n:]
		sent := make([]workflow.Future, n)
		for i, o := range batch {
			sent[i] = workflow.SignalExternalWorkflow(ctx, o.claim.WorkflowID, "", SignalLease, o.notice)
		}
		for i, o := range batch {
			k.sent(ctx, o, sent[i].Get(ctx, nil))
		}
	}
	k.outbox = nil
}

// nextBatch is how many of the notices go out next. Two to the same job do not go side by side: the later one could
// come first.
func nextBatch(all []outgoing) int {
	most := min(len(all), noticesAtOnce)
	for n := range most {
		if slices.ContainsFunc(all[:n], func(o outgoing) bool { return o.claim.WorkflowID == all[n].claim.WorkflowID }) {
			return n
		}
	}
	return most
}

// sent takes note of a notice. A job that cannot be told has ended: its claim goes.
func (k *keeper) sent(ctx workflow.Context, o outgoing, err error) {
	switch {
	case err != nil:
		k.state.Memory.Lease = k.state.Memory.Lease.Release(o.claim.WorkflowID, o.claim.RunID)
		delete(k.state.Told, o.claim.RunID)
		k.wakeUp()
	case o.notice.State == LeaseReleased || o.notice.State == LeaseParked || o.notice.State == LeaseRevoked:
		delete(k.state.Told, o.claim.RunID) // of a claim that is no more
	default:
		o.told.At = workflow.Now(ctx)
		k.state.Told[o.claim.RunID] = o.told
	}
}
