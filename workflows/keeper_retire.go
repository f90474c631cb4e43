package workflows

import (
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/lease"
)

// This file is the end of a keeper.

// retire undoes everything that this keeper did, and lets the policy go. What it cannot undo it tries again, and says
// so, until a person lets it go, or it can never be undone.
func (k *keeper) retire(ctx workflow.Context) (KeeperResult, error) {
	var out KeeperResult
	began := workflow.Now(ctx)
	for k.failures = 0; ; k.failures++ {
		ending, waits := k.undo(ctx)
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		if len(waits) == 0 {
			break
		}
		if why := ending.GivesUp(workflow.Now(ctx).Sub(began)); why != "" {
			out.Left, out.LeftBecause = waits, why
			k.farewell(ctx, out)
			break
		}
		k.await(ctx, waits)
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return out, k.continueAsNew(ctx)
		}
		if err := workflow.Sleep(ctx, min(retryAfter<<min(k.failures, 8), retryAfterMax)); err != nil {
			return out, err
		}
	}
	k.trouble = ""
	if _, err := call(persistent(ctx, "let the policy go"), keeping.GuardPolicy,
		activities.GuardInput{Cluster: k.cluster, On: false}); err != nil {
		return out, err
	}
	return out, k.dismissAll(ctx)
}

// undo tries to undo everything once, and returns what could not be undone. The budgets stay as long as flags do: they
// are what protects the storage meanwhile. Where the namespace goes, its budgets go with it, whether or not the
// right to delete them is still there.
func (k *keeper) undo(ctx workflow.Context) (ending budget.Ending, waits []string) {
	ending, err := call(quick(ctx, "how the policy ends"), keeping.PolicyEnding, k.cluster)
	if err != nil {
		waits = append(waits, message(err))
	}
	waits = append(waits, k.undoFlags(ctx)...)
	if err := k.letMachinesGo(ctx, false); err != nil {
		waits = append(waits, "the holds of Machines to be taken away: "+message(err))
	}
	if len(waits) > 0 && ending.GivesUp(0) == "" {
		return ending, waits
	}
	if err := k.releasePods(ctx); err != nil && !ending.NamespaceGoes {
		waits = append(waits, "the budgets to be removed: "+message(err))
	}
	return ending, waits
}

// await says what the deletion waits for, to whoever looks at the policy, at the keeper, or at a job that waits for the
// lease. The budgets are closed: nobody guards the storage any more.
func (k *keeper) await(ctx workflow.Context, waits []string) {
	if err := k.closeUntilClosed(ctx); err != nil {
		waits = append([]string{"the budgets to be closed: " + message(err)}, waits...)
	}
	k.trouble = "the deletion waits for " + strings.Join(waits, "; ")
	closed := budget.CloseFirst(k.state.Decision, "")
	closed.Reason = budget.ReasonDeleting
	closed.Message = clip(k.trouble) +
		fmt.Sprintf(". To leave that behind: kubectl -n %s annotate maintenancepolicy %s lockkeeper.io/leave-behind=true",
			k.cluster.Namespace, k.cluster.Name)
	k.closed = &closed
	k.dismiss(ctx)
	k.reportLater(ctx)
	workflow.SetCurrentDetails(ctx, k.details())
}

// closeUntilClosed closes at the first attempt to undo everything, and at each further one until it has succeeded.
func (k *keeper) closeUntilClosed(ctx workflow.Context) error {
	if k.failures > 0 {
		closed := k.state.Applied != nil && k.state.Applied.Mode == budget.ModeClosed
		if closed || workflow.GetVersion(ctx, closesAgain, workflow.DefaultVersion, 1) == workflow.DefaultVersion {
			return nil
		}
	}
	return k.closeFirst(ctx, "the policy is deleted")
}

// closesAgain is the change since when a deletion that waits closes more than once.
const closesAgain = "closes-again"

// farewell says what is left behind to whoever may look for it: in the events about the namespace, which are kept in
// "default", in the worker's log, and in the result.
func (k *keeper) farewell(ctx workflow.Context, out KeeperResult) {
	what := fmt.Sprintf("MaintenancePolicy %s is gone, and left behind: %s (%s)", k.cluster, strings.Join(out.Left, "; "),
		out.LeftBecause)
	if flags := k.flagsLeft(out.LeftBecause); flags != "" {
		what = fmt.Sprintf("MaintenancePolicy %s is gone, and %s. %s", k.cluster, flags, strings.Join(out.Left, "; "))
	}
	workflow.GetLogger(ctx).Warn(what)
	workflow.SetCurrentDetails(ctx, what)
	e := activities.Event{Reason: ReasonLeftBehind, Message: clipTo(what, mostEvent), Warning: true, At: workflow.Now(ctx)}
	if _, err := call(quick(ctx, "say what is left behind"), keeping.TellFarewell,
		activities.FarewellInput{Cluster: k.cluster, Event: e}); err != nil {
		workflow.GetLogger(ctx).Warn("cannot tell what is left behind", "error", err)
	}
}

// ReasonLeftBehind is the reason of the event about what a keeper leaves behind.
const ReasonLeftBehind = "LeftBehind"

// mostEvent is how long the message of an event may be.
const mostEvent = 1000

func clipTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// dismiss tells every job that has or wants the lease that there is none any more.
func (k *keeper) dismiss(ctx workflow.Context) (told bool) {
	k.drainHints(ctx)
	l := k.state.Memory.Lease
	claims := slices.Concat(l.Holders, l.Queue, k.state.Released, k.revoked)
	k.state.Memory.Lease, k.state.Released, k.revoked = lease.State{Token: l.Token}, nil, nil
	for _, c := range claims {
		k.tell(workflow.Now(ctx), c, LeaseNotice{
			State: LeaseRevoked, WaitsFor: "MaintenancePolicy " + k.cluster.String() + " is deleted",
			Since: workflow.Now(ctx),
		})
	}
	k.sendAll(ctx)
	return len(claims) > 0
}

// dismissAll comes last, and goes on for as long as somebody asks: a claim may come in until the very end.
func (k *keeper) dismissAll(ctx workflow.Context) error {
	for k.dismiss(ctx) || !workflow.AllHandlersFinished(ctx) {
		if err := workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
			return err
		}
	}
	return nil
}
