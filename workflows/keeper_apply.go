package workflows

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/doubt"
)

// This file makes the world follow a decision.

// apply makes the world follow the decision. Jobs hear of a grant last, when everything that it promises is in place.
func (k *keeper) apply(ctx workflow.Context) error {
	p, err := k.plan(ctx)
	if err != nil {
		return err
	}
	told, err := k.carryOut(ctx, p)
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

// plan is a decision as the steps that carry it out.
type plan struct {
	activities.CarryInput
	noout  budget.NooutPlan
	before []string // hosts of which it was not known before either whether noout is on its way to them
	next   budget.Decision
	marks  budget.MarkPlan
	asOf   doubt.Seq
	within time.Duration // from now on; 0: for as long as it takes
	// remembered and foretold are the reports of the plan as they are kept, and news what the first of them tells.
	remembered, foretold activities.Report
	news                 []activities.Event
}

// plan says how to make the world follow the decision.
func (k *keeper) plan(ctx workflow.Context) (*plan, error) {
	p := &plan{noout: k.planNoout(ctx), asOf: k.state.Doubts.Last}
	p.Cluster, p.Within = k.cluster, nooutWithin
	k.state.Memory.Noout = p.noout.Records
	k.tellPeople(ctx, p.noout.News)
	k.refused = nil
	p.before = k.askNoout(p.noout)
	remember := len(k.news) > 0 || !k.state.Memory.Covered(k.state.Reported.Memory)
	if remember {
		// A status that is being written comes first, or the older would win.
		if err := workflow.Await(ctx, func() bool { return !k.reporting }); err != nil {
			return nil, err
		}
	}
	p.noout.Set = k.stillHeld(p.noout.Set, p.before)
	p.Set, p.Unset = k.nooutInput(p.noout.Set, true), k.nooutInput(p.noout.Unset, false)
	p.Others = k.otherBudgets(ctx)
	k.planBudgets(ctx, p)
	if remember {
		p.remembered = k.draft()
		p.remembered.AsOf = workflow.Now(ctx)
		r := k.signed(ctx, p.remembered, k.state.Reported, p.take(k))
		p.Remember = &r
	}
	return p, nil
}

// planBudgets says what the budgets are to say next, and the marks with them.
func (k *keeper) planBudgets(ctx workflow.Context, p *plan) {
	if !k.observed.Settings.ManagePodBudgets {
		return
	}
	next, more := budget.Step(k.state.Applied, k.state.Decision)
	p.marks = budget.PlanMarks(k.input(ctx), k.state.Decision)
	if p.marks.Unset && !more {
		next, more = budget.CloseForMarks(k.state.Decision, *k.observed.Seen.View.Marks), true
	}
	p.next = next
	if next.Mode == budget.ModeDefault && k.marking && !k.says(next) {
		// A mark that is written late must find a budget that counts it. The end of the marking is a reason to look.
		k.stopMarking()
		if k.state.Applied == nil || k.state.Applied.Mode == budget.ModeClosed {
			k.sayClosed("the marks that are being written have to be done first")
		}
		return
	}
	k.again = more
	if k.state.Conflict == "" && k.says(next) && (k.undoubted() || k.seenAsApplied()) {
		k.state.Applied, k.state.AppliedAsOf = &next, k.state.Doubts.Last
		return
	}
	p.within, p.Closes = staleAfter, next.Mode == budget.ModeClosed
	if !p.Closes { // it is never too late to close
		if p.within -= workflow.Now(ctx).Sub(k.looked); p.within <= 0 {
			k.again, p.within = true, 0
			return
		}
	}
	in := k.budgetInput(next)
	p.Budgets = &in
}

// carryOut carries out a plan, and takes in what became of it. told means that the storage cluster did not answer, and
// that everybody was told so.
func (k *keeper) carryOut(ctx workflow.Context, p *plan) (told bool, err error) {
	k.foresee(ctx, p)
	asOf := k.state.Doubts.Last
	r, err := k.carry(ctx, p)
	if err != nil {
		return k.lost(ctx, p, err)
	}
	if err := r.Remembered.Err(); err != nil {
		k.daemonsDue = k.daemonsDue || p.Others != nil
		return false, err
	}
	k.daemonsDue = k.daemonsDue || r.Others.Err() != nil
	k.switched(p.Set, r.Set)
	k.switched(p.Unset, r.Unset)
	if err := r.Set.Err(); err != nil {
		if p.Closes {
			_ = k.tookBudgets(p, r.Budgets)
		}
		// A grant without its noout would let the storage move data about; the holders hear of it when it is set.
		return true, k.silent(ctx, "noout could not be set", err)
	}
	k.answered(p.noout, p.before, r.Set.Result.Unsure)
	if err = k.tookBudgets(p, r.Budgets); err == nil {
		err = k.followBudgets(ctx, p)
	}
	if err != nil {
		k.admitClosed(ctx, "the budgets could not be written, or their marks: "+message(err))
	}
	if failed := r.Unset.Err(); failed != nil {
		return true, k.silent(ctx, "noout could not be unset", failed)
	}
	k.withdraw(ctx, p)
	if r.Looked.Done() {
		k.ahead = &ahead{r.Looked.Result, p.Look.Hosts, asOf}
	}
	return false, cmp.Or(err, r.Others.Err())
}

// foresee adds to a plan what comes after it: another look, if another pass must follow at once, or else the status as
// it will be.
func (k *keeper) foresee(ctx workflow.Context, p *plan) {
	switch {
	case k.again && !p.isNothing():
		look := k.look().Look
		p.Look = &look
	case !k.again && !k.reporting && !p.marks.Unset && k.observed.Settings.ManagePodBudgets:
		k.foretell(ctx, p)
	}
}

// foretell has the status written that is true when the plan is carried out as it is meant.
func (k *keeper) foretell(ctx workflow.Context, p *plan) {
	memory := k.state.Memory
	k.answered(p.noout, p.before, false)
	k.withdraw(ctx, p)
	conflict := k.state.Conflict
	if p.Budgets != nil {
		k.state.Conflict = ""
	}
	if p.Remember != nil {
		k.state.Reported, p.remembered = p.remembered, k.state.Reported
	}
	r, before := k.draft(), k.state.Reported
	k.state.Memory, k.state.Conflict = memory, conflict
	if p.Remember != nil {
		k.state.Reported, p.remembered = p.remembered, k.state.Reported
	}
	if len(k.news) == 0 && reflect.DeepEqual(r, before) {
		return
	}
	r.AsOf = workflow.Now(ctx)
	p.foretold = r
	r = k.signed(ctx, r, before, p.take(k))
	p.Report = &r
}

// take takes what people are to be told.
func (p *plan) take(k *keeper) []activities.Event {
	news := k.news
	p.news, k.news = append(p.news, news...), nil
	return news
}

// carry is the activity that carries out a plan. What the budgets say is not known while they are being written, nor
// when the answer was lost.
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
		k.state.Applied = nil
		k.state.Settled = k.state.Settled && !p.Budgets.LetsGo()
	}
	r, err := call(options, keeping.CarryOut, p.CarryInput)
	if b := r.Budgets; b.Done() {
		k.state.Settled = k.state.Settled || b.Result.Moved == ""
	}
	if r.Remembered.Done() {
		k.reported(ctx, p.remembered)
	}
	if r.Reported.Done() {
		k.reported(ctx, p.foretold)
	}
	if !r.Remembered.Done() && !r.Reported.Done() {
		k.news = append(p.news, k.news...)
	}
	return r, err
}

func (p *plan) isNothing() bool {
	return p.Remember == nil && p.Others == nil && p.Set == nil && p.Unset == nil && p.Budgets == nil && p.Report == nil
}

// summary is what Temporal's UI shows of it, and the story of a keeper tells of its decisions.
func (p *plan) summary() string {
	switch {
	case p.Budgets != nil:
		return clip(fmt.Sprintf("%s: %s", p.next.Mode, p.next.Message))
	case p.Set != nil:
		return clip("set noout on " + strings.Join(p.Set.Hosts, ", "))
	case p.Unset != nil:
		return clip("unset noout on " + strings.Join(p.Unset.Hosts, ", "))
	case p.Others != nil:
		return "budgets of mgr, mds, rgw, rbd-mirror"
	default:
		return "status and events"
	}
}

// lost takes in that nobody knows what became of a plan.
func (k *keeper) lost(ctx workflow.Context, p *plan, err error) (told bool, _ error) {
	k.daemonsDue = k.daemonsDue || p.Others != nil
	switch {
	case p.Set != nil:
		return true, k.silent(ctx, "noout could not be set", err)
	case p.Unset != nil:
		return true, k.silent(ctx, "noout could not be unset", err)
	case p.Budgets != nil:
		k.admitClosed(ctx, "the budgets could not be written, or their marks: "+message(err))
	}
	return false, err
}

// tookBudgets takes in what became of the budgets.
func (k *keeper) tookBudgets(p *plan, a activities.Attempt[activities.BudgetResult]) error {
	r := a.Result
	switch {
	case !a.Begun || a.Err() != nil:
		return a.Err()
	case r.Moved != "" && r.Conflict != "": // one is missing that cannot be made: the others stay closed
		k.state.Conflict = r.Conflict
		k.sayClosed(r.Conflict)
	case r.Moved != "": // an alarm was raised since the look, or somebody else wrote: look again
		k.again = true
	default:
		k.applied(p.next, p.asOf, r)
	}
	return nil
}

// followBudgets sets and takes away the marks that belong to what the budgets say now.
func (k *keeper) followBudgets(ctx workflow.Context, p *plan) error {
	switch marks := p.marks; {
	case !k.observed.Settings.ManagePodBudgets:
		return k.releasePods(ctx)
	case marks.Unset && k.says(p.next) && p.next.Mode == budget.ModeClosed:
		return k.unmark(ctx, marks.UnsetAll)
	case marks.Set && p.next.Mode == budget.ModeDefault && k.says(p.next):
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

// undoubted: nothing has happened since they were written that could mean that somebody changed the budgets.
func (k *keeper) undoubted() bool { return k.state.AppliedAsOf >= k.state.Doubts.Budgets }

// seenAsApplied tells whether the last look saw the budgets as they were last written, and none of somebody else that
// could cover the same pods: then there is nothing to write. An opening that may still be on its way has to be fenced
// off by a write, whatever the budgets say.
func (k *keeper) seenAsApplied() bool {
	return k.state.Settled && !k.observed.OtherBudgets && len(k.observed.Book) > 0 &&
		k.observed.Book.Same(k.state.AppliedBook)
}

// guardPods writes the budgets of the storage daemons and the mons, and nothing else. What is applied is not known
// while it is being changed, nor when the answer was lost.
func (k *keeper) guardPods(ctx workflow.Context, d budget.Decision) (activities.BudgetResult, error) {
	in := k.budgetInput(d)
	k.state.Applied = nil
	k.state.Settled = k.state.Settled && !in.LetsGo()
	r, err := call(ctx, keeping.GuardPods, in)
	k.state.Settled = k.state.Settled || err == nil && r.Moved == ""
	return r, err
}

// budgetInput has the budgets say what a decision wants.
func (k *keeper) budgetInput(d budget.Decision) activities.BudgetInput {
	in := activities.BudgetInput{Cluster: k.cluster, Specs: k.specs(d)}
	in.Fence = !k.state.Settled && !in.LetsGo()
	if in.LetsGo() {
		in.Before = k.observed.Book
		if in.Before == nil {
			in.Before = budget.Book{}
		}
	}
	return in
}

// applied takes note of what the budgets say, as of a doubt.
func (k *keeper) applied(d budget.Decision, asOf doubt.Seq, r activities.BudgetResult) {
	k.state.Conflict, k.state.Applied, k.state.AppliedAsOf, k.state.AppliedBook = r.Conflict, &d, asOf, r.Book
}

// otherBudgets are the nodes by which the budgets of the other daemons go, if they are to be updated. They depend on
// little that changes.
func (k *keeper) otherBudgets(ctx workflow.Context) *activities.LeavingNodes {
	leaving := activities.LeavingNodes{
		Emptying: budget.Emptying(k.input(ctx), k.state.Decision),
		Granted:  budget.GrantedNodes(k.state.Memory.Lease),
	}
	same := slices.Equal(leaving.Emptying, k.leaving.Emptying) && slices.Equal(leaving.Granted, k.leaving.Granted)
	if !k.observed.Settings.ManagePodBudgets || (!k.daemonsDue && same) {
		return nil
	}
	k.daemonsDue, k.leaving = false, leaving
	return &leaving
}
