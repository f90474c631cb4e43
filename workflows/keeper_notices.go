package workflows

import (
	"slices"

	"go.temporal.io/sdk/workflow"
)

// This file sends notices to many jobs. One after the other, each would cost the keeper a round through Temporal, and
// what is to open would wait until hundreds of jobs have heard why they wait.

// noticesAtOnce bounds what is under way: Temporal takes 2,000 at a time.
const noticesAtOnce = 100

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
			if !k.sent(workflow.Now(ctx), o, sent[i].Get(ctx, nil)) {
				k.wakeUp()
			}
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
