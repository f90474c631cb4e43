package workflows

import (
	"fmt"
	"reflect"
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
)

// This file makes the world follow a decision.

// apply makes the world follow the decision. The order matters. What must not be forgotten is written down before it is
// done. The budget comes before unsetting noout and before the status, because it is what others wait for. Jobs hear of
// a grant last, when everything that it promises is in place.
func (k *keeper) apply(ctx workflow.Context) error {
	plan := k.planNoout(ctx)
	k.state.Memory.Noout = plan.Records
	k.tellPeople(ctx, plan.News)
	k.refused = nil
	before := k.askNoout(plan)
	if len(k.news) > 0 || !sameMemory(k.state.Memory, k.state.Reported.Memory) {
		if err := k.report(ctx); err != nil {
			return err
		}
	}
	var failures []error
	fail := func(err error) {
		if err != nil {
			failures = append(failures, err)
		}
	}
	plan.Set = k.stillHeld(plan.Set, before)
	if err := k.switchNoout(ctx, plan.Set, true); err != nil {
		// A grant without its noout would let the storage move data about; the holders hear of it when it is set.
		return k.silent(ctx, "noout could not be set", err)
	}
	k.answered(plan, before)
	if err := k.applyBudget(ctx); err != nil {
		k.admitClosed(ctx, "the budgets could not be written, or their marks: "+message(err))
		fail(err)
	}
	if err := k.switchNoout(ctx, plan.Unset, false); err != nil {
		return k.silent(ctx, "noout could not be unset", err)
	}
	for _, host := range plan.Unset {
		if _, refused := k.refused[host]; !refused {
			k.state.Memory.Noout = budget.Withdraw(workflow.Now(ctx), k.state.Memory.Noout, host, k.state.Memory.Lease.Holders)
		}
	}
	fail(k.applyStaticBudgets(ctx))
	if len(failures) > 0 {
		k.reportLater(ctx)
		return failures[0]
	}
	if k.again {
		return nil // nothing is granted, or worth reporting, before the budget says so
	}
	k.reportLater(ctx)
	k.followJobs(ctx)
	k.notify(ctx)
	return k.refusal()
}

// applyBudget makes the budgets say what was decided, or the next step on the way there, and the marks with them.
func (k *keeper) applyBudget(ctx workflow.Context) error {
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
	if !k.budgetDue && k.state.Conflict == "" && k.says(next) {
		k.state.Applied = &next
		return nil
	}
	within := staleAfter - workflow.Now(ctx).Sub(k.looked)
	if next.Mode == budget.ModeClosed {
		within = staleAfter // it is never too late to close
	} else if within <= 0 {
		k.again = true
		return nil
	}
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
	k.applied(next, r)
	k.budgetDue = false
	return nil
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

// applied takes note of what the budgets say now.
func (k *keeper) applied(d budget.Decision, r activities.BudgetResult) {
	k.state.Conflict, k.state.Applied = r.Conflict, &d
	k.state.AppliedGeneration, k.state.AppliedProvedGeneration, k.state.AppliedMonGeneration = r.Generation,
		r.ProvedGeneration, r.MonGeneration
}

func (k *keeper) applyStaticBudgets(ctx workflow.Context) error {
	leaving := activities.LeavingNodes{
		Emptying: budget.Emptying(k.input(ctx), k.state.Decision),
		Granted:  budget.GrantedNodes(k.state.Memory.Lease),
	}
	same := slices.Equal(leaving.Emptying, k.leaving.Emptying) && slices.Equal(leaving.Granted, k.leaving.Granted)
	if !k.observed.Settings.ManagePodBudgets || (!k.daemonsDue && same) {
		return nil
	}
	in := activities.StaticBudgetsInput{Cluster: k.cluster, LeavingNodes: leaving}
	_, err := call(quick(ctx, "budgets of mgr, mds, rgw, rbd-mirror"), keeping.GuardOthers, in)
	if err == nil {
		k.daemonsDue, k.leaving = false, leaving
	}
	return err
}
