package workflows

import (
	"cmp"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/lease"
)

// standAside is the pass of a keeper whose storage cluster another policy looks after, which was first. It manages
// nothing, says so, and waits until the other policy is gone or means another cluster: the watcher tells.
//
// A keeper that was in charge until a policy was edited first takes away what is its own, so that no pod remains under
// two budgets, and no job believes that it holds a lease that means something.
func (k *keeper) standAside(ctx workflow.Context) error {
	now := workflow.Now(ctx)
	if k.watch != nil {
		k.stopWatch()
		k.watch = nil
	}
	// Whatever was known is out of date by the time that this keeper is in charge again.
	d := budget.Decision{Mode: budget.ModeClosed, Reason: budget.ReasonSecondPolicy, Message: k.observed.Second}
	if k.state.Decision.Reason != d.Reason {
		k.state.Since = now
	}
	k.state.Decision, k.state.Watched, k.state.Proof, k.state.Announced, k.state.HealingSince = d, activities.Watched{}, nil, nil, time.Time{}
	k.state.Applied, k.state.Conflict, k.clean, k.next, k.closed = nil, "", false, time.Time{}, nil
	if err := k.letGo(ctx); err != nil {
		return err
	}
	l := k.state.Memory.Lease
	claims := slices.Concat(l.Holders, l.Queue, k.state.Released, k.revoked)
	k.state.Memory.Lease, k.state.Released, k.revoked = lease.State{Token: l.Token}, nil, nil
	k.reportLater(ctx)
	k.followJobs(ctx)
	for _, c := range claims {
		k.tell(ctx, c, LeaseNotice{State: LeaseRevoked, WaitsFor: d.Message, Since: now})
	}
	return nil
}

// letGo takes away the budgets and the noout flags that are this policy's own.
func (k *keeper) letGo(ctx workflow.Context) error {
	if k.aside && !k.budgetDue {
		return nil
	}
	if err := k.releasePods(ctx); err != nil {
		return err
	}
	k.refused = nil
	if err := cmp.Or(k.switchNoout(ctx, k.flagged(), false), k.refusal()); err != nil {
		return err
	}
	k.state.Memory.Noout, k.aside, k.budgetDue, k.daemonsDue = nil, true, false, true
	return nil
}
