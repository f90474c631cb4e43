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
	before := k.ask(ctx, plan)
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
	if err := k.switchNoout(ctx, plan.Set, true); err != nil {
		// A grant without its noout would let the storage move data about; the holders hear of it when it is set.
		return k.silent(ctx, "noout could not be set", err)
	}
	k.answered(ctx, plan, before)
	fail(k.applyBudget(ctx))
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

func (k *keeper) applyBudget(ctx workflow.Context) error {
	if !k.observed.Settings.ManagePodBudgets {
		_, err := call(quick(ctx, "remove our budgets"), keeping.RemoveBudgets, k.cluster)
		return err
	}
	next, more := budget.Step(k.state.Applied, k.state.Decision)
	k.again = more
	if !k.budgetDue && k.state.Conflict == "" && k.state.Applied != nil && reflect.DeepEqual(k.state.Applied.Specs(), next.Specs()) {
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
	// What was applied is not known while it is being changed, nor when the answer was lost.
	k.state.Applied = nil
	r, err := call(prompt(ctx, within, clip(fmt.Sprintf("%s: %s", next.Mode, next.Message))), keeping.ApplyBudget, activities.BudgetInput{Cluster: k.cluster, Specs: next.Specs()})
	if err != nil {
		return err
	}
	k.state.Conflict, k.state.Applied, k.budgetDue = r.Conflict, &next, false
	k.state.AppliedGeneration, k.state.AppliedMonGeneration = r.Generation, r.MonGeneration
	return nil
}

func (k *keeper) applyStaticBudgets(ctx workflow.Context) error {
	emptying := budget.Emptying(k.input(ctx), k.state.Decision)
	if !k.observed.Settings.ManagePodBudgets || (!k.daemonsDue && slices.Equal(emptying, k.emptying)) {
		return nil
	}
	in := activities.StaticBudgetsInput{Cluster: k.cluster, Emptying: emptying}
	_, err := call(quick(ctx, "budgets of mgr, mds, rgw, rbd-mirror"), keeping.ApplyStaticBudgets, in)
	if err == nil {
		k.daemonsDue, k.emptying = false, emptying
	}
	return err
}
