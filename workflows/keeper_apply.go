package workflows

import (
	"fmt"
	"reflect"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/doubt"
)

// This file makes the world follow a decision.

// apply makes the world follow the decision. The order matters. What must not be forgotten is written down before it is
// done. A budget that lets pods go comes after noout is set; one that closes waits for nothing. Jobs hear of a grant
// last, when everything that it promises is in place.
func (k *keeper) apply(ctx workflow.Context) error {
	plan := k.planNoout(ctx)
	k.state.Memory.Noout = plan.Records
	k.tellPeople(ctx, plan.News)
	k.refused = nil
	before := k.askNoout(plan)
	if len(k.news) > 0 || !k.state.Memory.Covered(k.state.Reported.Memory) {
		if err := k.report(ctx); err != nil {
			return err
		}
	}
	others := k.beginStaticBudgets(ctx)
	told, err := k.carryOut(ctx, plan, before)
	if e := k.endStaticBudgets(ctx, others); err == nil {
		err = e
	}
	switch {
	case told:
		return err
	case err != nil:
		k.reportLater(ctx)
		return err
	case k.again: // nothing is granted, or worth reporting, before the budget says so; but whoever is done is done
		if len(k.state.Released) > 0 {
			k.reportLater(ctx)
			k.notifyReleased(ctx)
		}
		return nil
	}
	k.reportLater(ctx)
	k.followJobs(ctx)
	k.notify(ctx)
	return k.refusal()
}

// carryOut switches noout and writes the budgets. told means that the storage cluster did not answer, and that
// everybody was told so.
func (k *keeper) carryOut(ctx workflow.Context, plan budget.NooutPlan, before []string) (told bool, err error) {
	plan.Set = k.stillHeld(plan.Set, before)
	setting, unsetting := k.beginNoout(ctx, plan.Set, true), k.beginNoout(ctx, plan.Unset, false)
	closing := k.closesNext()
	if closing {
		err = k.applyBudget(ctx)
	}
	unsure, failed := k.endNoout(ctx, setting)
	if failed != nil {
		// A grant without its noout would let the storage move data about; the holders hear of it when it is set.
		err := k.silent(ctx, "noout could not be set", failed)
		_, _ = k.endNoout(ctx, unsetting) // no later command for the same host may overtake it; it is repeated
		return true, err
	}
	k.answered(plan, before, unsure)
	if !closing {
		err = k.applyBudget(ctx)
	}
	if _, failed := k.endNoout(ctx, unsetting); failed != nil {
		return true, k.silent(ctx, "noout could not be unset", failed)
	}
	for _, host := range plan.Unset {
		if _, refused := k.refused[host]; !refused {
			k.state.Memory.Noout = budget.Withdraw(workflow.Now(ctx), k.state.Memory.Noout, host, k.state.Memory.Lease.Holders)
		}
	}
	return false, err
}

// closesNext tells whether applyBudget closes, so that it need not wait for anything.
func (k *keeper) closesNext() bool {
	next, _ := budget.Step(k.state.Applied, k.state.Decision)
	return k.observed.Settings.ManagePodBudgets && next.Mode == budget.ModeClosed
}

// applyBudget makes the budgets say what was decided, or the next step on the way there, and the marks with them. When
// that fails, the status says that all is closed.
func (k *keeper) applyBudget(ctx workflow.Context) error {
	err := k.stepBudget(ctx)
	if err != nil {
		k.admitClosed(ctx, "the budgets could not be written, or their marks: "+message(err))
	}
	return err
}

func (k *keeper) stepBudget(ctx workflow.Context) error {
	if !k.observed.Settings.ManagePodBudgets {
		return k.releasePods(ctx)
	}
	next, more := budget.Step(k.state.Applied, k.state.Decision)
	marks := budget.PlanMarks(k.input(ctx), k.state.Decision)
	if marks.Unset && !more {
		next, more = budget.CloseForMarks(k.state.Decision, *k.observed.Seen.View.Marks), true
	}
	if next.Mode == budget.ModeDefault && k.marking && !k.says(next) {
		// A mark that is written late must find a budget that counts it. The end of the marking is a reason to look.
		k.stopMarking()
		if k.state.Applied == nil || k.state.Applied.Mode == budget.ModeClosed {
			k.sayClosed("the marks that are being written have to be done first")
		}
		return nil
	}
	if err := k.writeBudgets(ctx, next, more); err != nil {
		return err
	}
	switch {
	case marks.Unset && k.says(next) && next.Mode == budget.ModeClosed:
		return k.unmark(ctx, marks.UnsetAll)
	case marks.Set && next.Mode == budget.ModeDefault && k.says(next):
		k.mark(ctx, k.state.Decision.Reason == budget.ReasonPGHealthTimeout)
	}
	return nil
}

// sayClosed has the status say that nobody may go although something else was decided: what the budgets say is
// something else, or is not known.
func (k *keeper) sayClosed(why string) {
	if k.state.Decision.Mode == budget.ModeClosed {
		return
	}
	closed := budget.CloseFirst(k.state.Decision, why)
	k.closed = &closed
}

// admitClosed is sayClosed, and writes the status.
func (k *keeper) admitClosed(ctx workflow.Context, why string) {
	k.sayClosed(why)
	k.reportLater(ctx)
}

// says tells whether the budgets are known to say what a decision wants.
func (k *keeper) says(d budget.Decision) bool {
	return k.state.Applied != nil && reflect.DeepEqual(k.specs(*k.state.Applied), k.specs(d))
}

// specs are a decision's. There are always two budgets over the storage daemons.
func (k *keeper) specs(d budget.Decision) budget.Specs {
	s := d.Specs()
	if s.Unproved == nil {
		s.Unproved = &budget.Spec{MinAvailable: budget.Everything, Key: s.Daemons.Key, Except: s.Daemons.Except}
	}
	return s
}

// writeBudgets writes them, unless they are known to say it already. more tells that another pass must follow at once.
func (k *keeper) writeBudgets(ctx workflow.Context, next budget.Decision, more bool) error {
	k.again = more
	if k.state.Conflict == "" && k.says(next) && (k.undoubted() || k.seenAsApplied()) {
		k.state.Applied, k.state.AppliedAsOf = &next, k.state.Doubts.Last
		return nil
	}
	within := staleAfter - workflow.Now(ctx).Sub(k.looked)
	if next.Mode == budget.ModeClosed {
		within = staleAfter // it is never too late to close
	} else if within <= 0 {
		k.again = true
		return nil
	}
	asOf := k.state.Doubts.Last
	r, err := k.guardPods(prompt(ctx, within, clip(fmt.Sprintf("%s: %s", next.Mode, next.Message))), next)
	if err != nil {
		return err
	}
	if r.Moved != "" && r.Conflict != "" { // one is missing that cannot be made: the others stay closed
		k.state.Conflict = r.Conflict
		k.sayClosed(r.Conflict)
		return nil
	}
	if r.Moved != "" { // an alarm was raised since the look, or somebody else wrote: look again
		k.again = true
		return nil
	}
	k.applied(next, asOf, r)
	return nil
}

// undoubted: nothing has happened since they were written that could mean that somebody changed the budgets.
func (k *keeper) undoubted() bool { return k.state.AppliedAsOf >= k.state.Doubts.Budgets }

// seenAsApplied tells whether the last look saw the budgets as they were last written, and none of somebody else that
// could cover the same pods: then there is nothing to write. An opening that may still be on its way has to be fenced
// off by a write, whatever the budgets say.
func (k *keeper) seenAsApplied() bool {
	return k.state.Settled && !k.observed.OtherBudgets && len(k.observed.Book) > 0 &&
		k.observed.Book.Same(k.state.AppliedBook)
}

// guardPods is the activity that writes the budgets of the storage daemons and the mons. What is applied is not known
// while it is being changed, nor when the answer was lost.
func (k *keeper) guardPods(ctx workflow.Context, d budget.Decision) (activities.BudgetResult, error) {
	k.state.Applied = nil
	in := activities.BudgetInput{Cluster: k.cluster, Specs: k.specs(d)}
	in.Fence = !k.state.Settled && !in.LetsGo()
	if in.LetsGo() {
		in.Before = k.observed.Book
		if in.Before == nil {
			in.Before = budget.Book{}
		}
	}
	k.state.Settled = k.state.Settled && !in.LetsGo()
	r, err := call(ctx, keeping.GuardPods, in)
	k.state.Settled = k.state.Settled || err == nil && r.Moved == ""
	return r, err
}

// applied takes note of what the budgets say, as of a doubt.
func (k *keeper) applied(d budget.Decision, asOf doubt.Seq, r activities.BudgetResult) {
	k.state.Conflict, k.state.Applied, k.state.AppliedAsOf, k.state.AppliedBook = r.Conflict, &d, asOf, r.Book
}

// staticBudgets is an update of the budgets of the other daemons that is under way.
type staticBudgets struct {
	done    workflow.Future // nil: nothing is to be done
	leaving activities.LeavingNodes
}

// beginStaticBudgets begins to update the budgets of the other daemons, which depend on little that changes.
func (k *keeper) beginStaticBudgets(ctx workflow.Context) staticBudgets {
	leaving := activities.LeavingNodes{
		Emptying: budget.Emptying(k.input(ctx), k.state.Decision),
		Granted:  budget.GrantedNodes(k.state.Memory.Lease),
	}
	same := slices.Equal(leaving.Emptying, k.leaving.Emptying) && slices.Equal(leaving.Granted, k.leaving.Granted)
	if !k.observed.Settings.ManagePodBudgets || (!k.daemonsDue && same) {
		return staticBudgets{}
	}
	k.daemonsDue, k.leaving = false, leaving
	in := activities.StaticBudgetsInput{Cluster: k.cluster, LeavingNodes: leaving}
	return staticBudgets{begin(quick(ctx, "budgets of mgr, mds, rgw, rbd-mirror"), keeping.GuardOthers, in), leaving}
}

func (k *keeper) endStaticBudgets(ctx workflow.Context, s staticBudgets) error {
	if s.done == nil {
		return nil
	}
	err := s.done.Get(ctx, nil)
	k.daemonsDue = k.daemonsDue || err != nil
	return err
}
