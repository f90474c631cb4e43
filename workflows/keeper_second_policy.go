package workflows

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/guard"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/precedence"
)

// standAside is the pass of a keeper whose storage cluster another policy looks after, which was first. It manages
// nothing, says so, and waits until the other policy is gone or means another cluster: the watcher tells.
//
// A keeper that was in charge until a policy was edited first takes away what is its own, so that no pod remains under
// two budgets, and no job believes that it holds a lease that means something. Its claim goes last: until then the
// other keeper opens nothing.
func (k *keeper) standAside(ctx workflow.Context) error {
	if err := k.retreat(ctx, budget.Decision{
		Mode: budget.ModeClosed, Reason: budget.ReasonSecondPolicy,
		Message: k.observed.Second,
	}); err != nil || k.again {
		return err
	}
	if k.observed.Claim != nil {
		k.state.Memory.Claim = precedence.Claim{ID: cmp.Or(k.observed.Seen.ID, k.state.Memory.Claim.ID)}
	}
	k.reportLater(ctx)
	k.lookAgain(workflow.Now(ctx))
	return nil
}

// retreat closes, takes back all that was done for this policy, and tells the jobs. again: the policy is in charge
// after all, and its Machines are held as before.
func (k *keeper) retreat(ctx workflow.Context, d budget.Decision) error {
	now := workflow.Now(ctx)
	k.endWatch()
	// Whatever was known is out of date by the time that this keeper is in charge again.
	if k.state.Decision.Reason != d.Reason {
		k.state.Since = now
	}
	k.state.Decision, k.state.Watched, k.state.Remembered = d, activities.Watched{}, budget.Remembered{}
	k.state.Applied, k.state.Conflict, k.verdict, k.next, k.closed = nil, "", guard.Verdict{}, time.Time{}, nil
	if err := k.letGo(ctx); err != nil {
		return err
	}
	l := k.state.Memory.Lease
	claims := slices.Concat(l.Holders, l.Queue, k.state.Released, k.revoked)
	k.state.Memory.Lease, k.state.Released, k.revoked = lease.State{Token: l.Token}, nil, nil
	k.reportLater(ctx)
	k.followJobs(ctx)
	for _, c := range claims {
		k.tell(workflow.Now(ctx), c, LeaseNotice{State: LeaseRevoked, WaitsFor: d.Message, Since: now})
	}
	k.sendAll(ctx)
	return nil
}

// letGo takes away the budgets and the flags that are this policy's own.
func (k *keeper) letGo(ctx workflow.Context) error {
	keepClosed := k.observed.Settings.ManagePodBudgets && (k.observed.SecondElsewhere || k.movedOn() || k.succeeded())
	if k.aside && k.asideAsOf >= k.state.Doubts.Budgets && k.keptClosed == keepClosed {
		return nil
	}
	asOf := k.state.Doubts.Last
	if err := k.letPodsGo(ctx, keepClosed); err != nil || k.again {
		return err
	}
	if err := k.letFlagsGo(ctx); err != nil {
		return err
	}
	k.dropFlags()
	if err := k.letMachinesGo(ctx, !k.movedOn()); err != nil || k.again {
		return err
	}
	k.aside, k.asideAsOf, k.keptClosed, k.daemonsDue = true, asOf, keepClosed, true
	return nil
}

// letPodsGo takes the budgets away, or has them stay, closed, because nothing else would protect the storage daemons of
// this namespace: the other policy is of another one, or its keeper has not made its own yet.
func (k *keeper) letPodsGo(ctx workflow.Context, keepClosed bool) error {
	if !keepClosed {
		return k.releasePods(ctx)
	}
	if err := k.endMarking(ctx); err != nil {
		return err
	}
	closed := budget.CloseAll(k.state.Decision, k.state.Decision.Message)
	_, err := k.guardPods(prompt(ctx, staleAfter, clip("close: "+k.state.Decision.Message)), closed)
	return err
}

// succeeded tells whether the keeper of the other policy puts its own budgets in the place of those that this one made.
// It does when this one has given up its claim, so whoever never had one has nothing to leave.
func (k *keeper) succeeded() bool {
	return k.observed.SecondGuards && k.state.Memory.Claim.ID != ""
}

// leaveOldCluster takes back what was done for the storage cluster that the policy meant before. The claim to the new
// one comes after that.
func (k *keeper) leaveOldCluster(ctx workflow.Context) error {
	d := budget.Decision{Mode: budget.ModeClosed, Reason: budget.ReasonNotInCharge, Message: fmt.Sprintf(
		"the policy now means the storage cluster with the ID %s, and meant %s before; what was done for that one is taken "+
			"back first", k.observed.Seen.ID, k.state.Memory.Claim.ID)}
	if err := k.retreat(ctx, d); err != nil {
		return err
	}
	k.state.Memory.Claim, k.aside, k.again = precedence.Claim{ID: k.observed.Seen.ID}, false, true
	return k.report(ctx)
}
