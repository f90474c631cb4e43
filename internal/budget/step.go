package budget

import "slices"

// This file holds the way from what the budgets say to what they should say. Between the look that a decision rests on
// and the update that carries it out, the old budgets still let somebody go. So whatever opens something new does so
// from a state in which nobody could go just before, after one more look, in which whoever went before that is seen.

// Step is the next thing that the budgets should say on the way to next; more tells that it is not next itself yet, and
// that another look has to follow at once. applied is nil when it is not known what the budgets say.
func Step(applied *Decision, next Decision) (step Decision, more bool) {
	if opensAnother(applied, next) || comesToRest(applied, next) {
		return CloseBefore(next), true
	}
	if mons, swaps := swapsMons(applied, next); swaps {
		next.Mons = mons
		return next, true
	}
	return next, false
}

// opensAnother: the budget of the storage daemons lets somebody go now whom the next one does not, and the other way
// round.
func opensAnother(applied *Decision, next Decision) bool {
	if next.Mode != ModeOpen {
		return false
	}
	return applied == nil || (applied.Mode != ModeClosed &&
		(applied.Mode != ModeOpen || applied.Open != next.Open || !slices.Equal(applied.With, next.With)))
}

// comesToRest: a failure domain may be open now. Whoever goes there at the last moment may still be counted by the
// budget at rest, which the disruption controller computes from what it has heard of the pods. So the way to rest leads
// through a look that is taken while everything is closed.
func comesToRest(applied *Decision, next Decision) bool {
	return next.Mode == ModeDefault && next.Unproved != nil && (applied == nil || applied.Mode == ModeOpen)
}

// CloseBefore is the closed step on the way to opening a domain, or from one to rest.
func CloseBefore(next Decision) Decision {
	message := "closed for a last look before " + next.Open.String() + " opens"
	if next.Mode == ModeDefault {
		message = "closed for a last look before it comes to rest"
	}
	return Decision{
		Mode: ModeClosed, Reason: next.Reason, Message: message,
		Budget: Spec{MinAvailable: Everything}, Unproved: closedUnproved(next), Mons: closedMons(next.Mons),
	}
}

// CloseFirst closes whatever was decided last, because of something at which nobody has looked yet. Before anything was
// decided it is not known whether mons have a budget: then they have a closed one, or that of the keeper before would
// go.
func CloseFirst(decided Decision, why string) Decision {
	d := Decision{
		Mode: ModeClosed, Reason: ReasonNotProvenClean, Message: "closed at once: " + why,
		Budget: Spec{MinAvailable: Everything}, Unproved: closedUnproved(decided), Mons: closedMons(decided.Mons),
	}
	if decided.Reason == "" {
		d.Mons = &Spec{MinAvailable: Everything}
	}
	return d
}

// CloseAll closes as CloseFirst does, and also what the last decision had no budget for.
func CloseAll(decided Decision, why string) Decision {
	d := CloseFirst(decided, why)
	d.Mons = &Spec{MinAvailable: Everything}
	return d
}

func closedUnproved(next Decision) *Spec {
	if next.Unproved == nil {
		return nil
	}
	return &Spec{MinAvailable: Everything}
}

// closedMons keeps every mon, where mons have a budget at all.
func closedMons(next *Spec) *Spec {
	if next == nil {
		return nil
	}
	return &Spec{MinAvailable: Everything}
}

// swapsMons: some mon may go now that may not go afterwards, and another one the other way round. Quorum can spare
// either, but perhaps not both. The budget in between is of those that may go in both.
func swapsMons(applied *Decision, next Decision) (between *Spec, swaps bool) {
	if next.Mons == nil || len(next.Mons.Except) == 0 {
		return nil, false
	}
	closed := closedMons(next.Mons)
	if applied == nil || applied.Mons == nil || !applied.Mons.Quiet && applied.Mons.MinAvailable < Everything {
		return closed, true
	}
	var both []string
	added := false
	for _, m := range next.Mons.Except {
		if slices.Contains(applied.Mons.Except, m) {
			both = append(both, m)
		} else {
			added = true
		}
	}
	if !added || len(both) == len(applied.Mons.Except) {
		return nil, false
	}
	if len(both) > 0 {
		closed.Key, closed.Except = next.Mons.Key, both
	}
	return closed, true
}
