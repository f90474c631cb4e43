package workflows

import (
	"cmp"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
)

// This file makes the world follow a decision.

// apply makes the world follow the decision. Jobs hear of a grant last, when everything that it promises is in place.
func (k *keeper) apply(ctx workflow.Context) error {
	p := k.prepare(workflow.Now(ctx))
	if p.remember {
		// A status that is being written comes first, or the older would win.
		if err := workflow.Await(ctx, func() bool { return !k.reporting }); err != nil {
			return err
		}
	}
	k.complete(workflow.Now(ctx), p, !k.reporting)
	told, err := k.carryOut(ctx, p)
	switch {
	case told:
		return err
	case err != nil:
		k.reportLater(ctx)
		return err
	case k.again: // nothing is granted, or worth reporting, before the budget says so; but whoever is done is done
		if k.late || len(k.state.Released) > 0 && !k.here { // otherwise the status says so with what comes next
			k.reportLater(ctx)
		}
		if len(k.state.Released) > 0 {
			k.tellReleased(workflow.Now(ctx))
			k.sendAll(ctx)
		}
		return nil
	}
	k.reportLater(ctx)
	k.followJobs(ctx)
	k.notify(ctx)
	return k.refusal()
}

// carryOut carries out a plan, and does what follows from what became of it. told means that the storage cluster did
// not answer, and that everybody was told so.
func (k *keeper) carryOut(ctx workflow.Context, p *plan) (told bool, err error) {
	if p.haltsMarking {
		k.stopMarking()
	}
	r, err := k.carry(ctx, p)
	if err != nil {
		k.lost(p)
	} else {
		err = k.took(workflow.Now(ctx), p, r)
	}
	if p.mute != "" {
		return true, k.silent(ctx, p.mute, err)
	}
	if err == nil {
		err = k.followBudgets(ctx, p)
		p.unsaid = p.unsaid || err != nil
	}
	if p.unsaid {
		k.admitClosed(ctx, "the budgets could not be written, or their marks: "+message(err))
	}
	return false, cmp.Or(err, r.Others.Err(), r.Relocated.Err())
}

// carry is the activity that carries out a plan.
func (k *keeper) carry(ctx workflow.Context, p *plan) (activities.CarryResult, error) {
	if p.isNothing() {
		return activities.CarryResult{}, nil
	}
	options := quick(ctx, p.summary())
	if p.within > 0 {
		options = workflow.WithScheduleToCloseTimeout(options, p.within)
	}
	if p.Remember != nil || p.Report != nil {
		k.reporting = true // nobody else writes the status meanwhile
		defer func() {
			if k.reporting = false; k.unreported {
				k.reportLater(ctx)
			}
		}()
	}
	if p.Budgets != nil {
		k.writing(*p.Budgets)
	}
	r, err := k.execute(ctx, options, p)
	if k.tookReports(p, r); r.Remembered.Done() || r.Reported.Done() {
		workflow.SetCurrentDetails(ctx, k.details())
	}
	return r, err
}

// execute runs the activity. Of what changes anything, or tells anybody something new, there has to be a record before
// it begins.
func (k *keeper) execute(ctx, options workflow.Context, p *plan) (activities.CarryResult, error) {
	if k.here && p.onlyRewords() {
		return callHere(here(ctx, p.summary()), keeping.CarryOut, p.CarryInput)
	}
	return call(options, keeping.CarryOut, p.CarryInput)
}

// followBudgets sets and takes away the marks that belong to what the budgets say now.
func (k *keeper) followBudgets(ctx workflow.Context, p *plan) error {
	switch marks := p.marks; {
	case !k.observed.Settings.ManagePodBudgets:
		return k.releasePods(ctx)
	case marks.Unset && k.says(p.next) && p.next.Mode == budget.ModeClosed:
		return k.unmark(ctx, marks)
	case marks.Set && p.next.Mode == budget.ModeDefault && k.says(p.next):
		k.mark(ctx, marks)
	}
	return nil
}

// admitClosed is sayClosed, and writes the status.
func (k *keeper) admitClosed(ctx workflow.Context, why string) {
	k.sayClosed(why)
	k.reportLater(ctx)
}

// guardPods closes the budgets that follow decisions, and does nothing else.
func (k *keeper) guardPods(ctx workflow.Context, d budget.Decision) (activities.BudgetResult, error) {
	in := k.budgetInput(d)
	in.Machines = k.openForMachines()
	k.writing(in)
	r, err := call(ctx, keeping.GuardPods, in)
	k.state.Settled = k.state.Settled || err == nil && r.Moved == ""
	return r, err
}
