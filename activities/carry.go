package activities

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// CarryInput is a decision of the keeper as the steps in which it is carried out, in this order. A step that is nil is
// left out.
type CarryInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	// Remember is the status that is written before anything else is done: it names what must not be forgotten.
	Remember *Report `json:"remember,omitempty"`
	// Others are the budgets of the other daemons, under the policy as the look saw it. No step waits for them.
	Others *LeavingNodes `json:"others,omitempty"`
	Policy PolicyVersion `json:"policy,omitzero"`
	// Set and Unset are hosts whose flag is switched, Within at the most: a storage cluster without a quorum takes for
	// ever.
	Set    *FlagInput    `json:"set,omitempty"`
	Unset  *FlagInput    `json:"unset,omitempty"`
	Within time.Duration `json:"within,omitempty"`
	// Budgets that let somebody go are written after Set is done, others while it is.
	Budgets *BudgetInput `json:"budgets,omitempty"`
	Closes  bool         `json:"closes,omitempty"`
	// Relocate is done when the budgets are written: data may be moved to a node that they let go before.
	Relocate *RelocateInput `json:"relocate,omitempty"`
	// Hold are holds of Machines that are set, or taken away from whom nobody relies on: that waits for nothing. A number
	// by which Machines may go is closed before anybody else is let go. LetGo are the others that are taken away: after
	// all that closes, and after the budgets say what was decided.
	Hold  *HoldsInput `json:"hold,omitempty"`
	LetGo *HoldsInput `json:"letGo,omitempty"`
	// TakeBack are pods that wait for their turn again, though a person had let them go. No step waits for them.
	TakeBack []storage.Override `json:"takeBack,omitempty"`
	// Report is the status that is written if all of this went as it was meant to.
	Report *Report `json:"report,omitempty"`
	// Look is taken when all of this is done.
	Look *Look `json:"look,omitempty"`
}

// CarryResult is what became of each step.
type CarryResult struct {
	Remembered Attempt[struct{}]            `json:"remembered,omitzero"`
	Others     Attempt[StaticBudgetsResult] `json:"others,omitzero"`
	Set        Attempt[FlagResult]          `json:"set,omitzero"`
	Unset      Attempt[FlagResult]          `json:"unset,omitzero"`
	Budgets    Attempt[BudgetResult]        `json:"budgets,omitzero"`
	Relocated  Attempt[RelocateResult]      `json:"relocated,omitzero"`
	Held       Attempt[HoldsResult]         `json:"held,omitzero"`
	LetGo      Attempt[HoldsResult]         `json:"letGo,omitzero"`
	TakenBack  Attempt[struct{}]            `json:"takenBack,omitzero"`
	Reported   Attempt[struct{}]            `json:"reported,omitzero"`
	Looked     Attempt[Observation]         `json:"looked,omitzero"`
}

// Attempt is what became of a step; the zero Attempt is of one that was not begun. Of one that failed nobody knows
// whether it was done.
type Attempt[T any] struct {
	Begun  bool   `json:"begun,omitempty"`
	Failed string `json:"failed,omitempty"` // why
	Result T      `json:"result,omitzero"`
}

// Done tells whether the step was begun, and done.
func (a Attempt[T]) Done() bool { return a.Begun && a.Failed == "" }

// Err is why the step failed; nil: it did not, or was not begun.
func (a Attempt[T]) Err() error {
	if a.Failed == "" {
		return nil
	}
	return errors.New(a.Failed)
}

// CarryOut carries out a decision. The order of its steps is the safety of it: what must not be forgotten is written
// down before it is done, what closes waits for nothing, and what lets somebody go comes after the flag is set. It is
// no error of the activity that a step fails: it tells what became of each.
func (k *Keeper) CarryOut(ctx context.Context, in CarryInput) (CarryResult, error) {
	var out CarryResult
	ctx, stop := endsInTime(ctx)
	defer stop()
	if in.Remember != nil {
		out.Remembered, _ = attempt(ctx, k.remember, ReportInput{Cluster: in.Cluster, Report: *in.Remember})
		if !out.Remembered.Done() {
			return out, nil
		}
	}
	var others, closing, setting, unsetting, holding sync.WaitGroup
	numbered := make(chan string, 1)
	if in.Hold != nil {
		holding.Go(func() { out.Held = k.hold(ctx, *in.Hold, numbered) })
	} else {
		numbered <- ""
	}
	if in.Others != nil {
		others.Go(func() {
			out.Others, _ = attempt(ctx, k.GuardOthers,
				StaticBudgetsInput{Cluster: in.Cluster, Policy: in.Policy, LeavingNodes: *in.Others})
		})
	}
	if len(in.TakeBack) > 0 {
		others.Go(func() { out.TakenBack, _ = attempt(ctx, k.takeBack, in) })
	}
	switching, late := context.WithTimeout(ctx, cmp.Or(in.Within, time.Minute))
	defer late()
	if in.Set != nil {
		setting.Go(func() { out.Set = k.switchFlag(switching, *in.Set) })
	}
	if in.Unset != nil {
		unsetting.Go(func() { out.Unset = k.switchFlag(switching, *in.Unset) })
	}
	if in.Budgets != nil && in.Closes {
		closing.Go(func() { out.Budgets, _ = attempt(ctx, k.GuardPods, *in.Budgets) })
	}
	setting.Wait()
	if in.Budgets != nil && !in.Closes && out.Set.Err() == nil {
		if why := <-numbered; why != "" {
			out.Budgets.Failed = "the MachineDisruptionBudget has to let nobody go before: " + why
		} else {
			out.Budgets, _ = attempt(ctx, k.GuardPods, *in.Budgets)
		}
	}
	closing.Wait()
	if in.Relocate != nil && out.budgetsSay() {
		out.Relocated, _ = attempt(ctx, k.relocate, *in.Relocate)
	}
	unsetting.Wait()
	holding.Wait()
	if in.LetGo != nil && out.mayLetGo() {
		out.LetGo, _ = attempt(ctx, k.ChangeHolds, in.LetGo.after(out.Budgets))
	}
	if out.Set.Err() == nil && out.Unset.Err() == nil {
		k.tellAndLook(ctx, in, &out)
	}
	others.Wait()
	return out, nil
}

// tellAndLook writes the status, if it will be true, and looks what came of it all.
func (k *Keeper) tellAndLook(ctx context.Context, in CarryInput, out *CarryResult) {
	var telling sync.WaitGroup
	slow, stop := context.WithCancel(ctx)
	defer stop()
	if in.Report != nil && out.asMeant() {
		telling.Go(func() {
			out.Reported, _ = attempt(slow, k.ReportStatus, ReportInput{Cluster: in.Cluster, Report: *in.Report})
		})
	}
	if in.Look != nil && out.Budgets.Err() == nil {
		out.Looked, _ = attempt(ctx, k.ObserveStorage, ObserveInput{Cluster: in.Cluster, Look: *in.Look})
	}
	// Only people wait for the status, and the next step may be urgent.
	giveUp := time.AfterFunc(reportWithin, stop)
	defer giveUp.Stop()
	telling.Wait()
}

// reportWithin is how long the rest of a decision waits for its status.
const reportWithin = time.Second

// asMeant tells whether all steps did what they were meant to do, so far.
func (r *CarryResult) asMeant() bool {
	b := r.Budgets
	return b.Err() == nil && b.Result.Moved == "" && b.Result.Conflict == "" &&
		r.Held.Err() == nil && r.LetGo.Err() == nil && !r.LetGo.Result.Moved &&
		len(r.Set.Result.Refused) == 0 && len(r.Unset.Result.Refused) == 0 &&
		!r.Set.Result.Unsure && !r.Unset.Result.Unsure
}

// mayLetGo tells whether all that comes before a release of Machines was done.
func (r *CarryResult) mayLetGo() bool {
	return r.Set.Err() == nil && r.Held.Err() == nil && r.budgetsSay()
}

// budgetsSay tells whether the budgets say what was decided, if they had to be written.
func (r *CarryResult) budgetsSay() bool {
	return r.Budgets.Err() == nil && r.Budgets.Result.Moved == "" && r.Budgets.Result.Conflict == ""
}

// hold sets holds and takes them away. A number by which Machines may go is closed before, or by it another one
// might go beside those that are let go; numbered hears why that could not be done.
func (k *Keeper) hold(ctx context.Context, in HoldsInput, numbered chan<- string) (out Attempt[HoldsResult]) {
	rest := in
	if in.Max != nil && *in.Max == 0 {
		out, _ = attempt(ctx, k.ChangeHolds, HoldsInput{Cluster: in.Cluster, Fencing: in.Fencing, Max: in.Max})
		if rest.Max = nil; out.Failed != "" {
			rest.Remove = nil
		}
	}
	numbered <- out.Failed
	if out.Begun && len(rest.Set)+len(rest.Remove) == 0 && !rest.Drop {
		return out
	}
	failed := out.Failed
	out, _ = attempt(ctx, k.ChangeHolds, rest)
	out.Failed = cmp.Or(failed, out.Failed)
	return out
}

// after is the input when the budgets were written in between: what they are then is what they have to be still.
func (in HoldsInput) after(budgets Attempt[BudgetResult]) HoldsInput {
	if in.Before != nil && budgets.Done() {
		in.Before = budgets.Result.Book
	}
	return in
}

func (k *Keeper) switchFlag(ctx context.Context, in FlagInput) Attempt[FlagResult] {
	out, tries := attempt(ctx, k.SwitchNoout, in)
	out.Result.Unsure = out.Result.Unsure || tries > 1
	return out
}

// attempt tries a step a few times, since most of what fails in between succeeds a moment later.
func attempt[I, O any](
	ctx context.Context, step func(context.Context, I) (O, error), in I,
) (out Attempt[O], tries int) {
	const most = 4
	out.Begun = true
	for tries = 1; ; tries++ {
		result, err := step(ctx, in)
		if err == nil {
			out.Result, out.Failed = result, ""
			return out, tries
		}
		if out.Failed == "" || ctx.Err() == nil { // that its time was over says less than what failed before
			out.Failed = words(err)
		}
		if tries == most || final(err) {
			return out, tries
		}
		select {
		case <-time.After(firstPause << (tries - 1)):
		case <-ctx.Done():
			return out, tries
		}
	}
}

// firstPause comes before the second attempt of a step, and is doubled for each that follows.
const firstPause = 200 * time.Millisecond

func final(err error) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.NonRetryable()
}

// words are an error's, without what the SDK adds to those of an activity.
func words(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return cmp.Or(app.Message(), err.Error())
	}
	return cmp.Or(err.Error(), "failed")
}

// endsInTime ends a little before the time of the activity is over: what became of each step is better known than
// timed out.
func endsInTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if !activity.IsActivity(ctx) {
		return context.WithCancel(ctx)
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-answerWithin))
}

// answerWithin is how long an answer may take to Temporal.
const answerWithin = 500 * time.Millisecond
