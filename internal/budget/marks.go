package budget

import (
	"fmt"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file decides about the marks. Their order with the budgets is the safety: a budget that counts marks is raised
// before a pod is marked, and both budgets are closed before a mark is taken away, since a budget's status may be older
// than the mark.

// MarkPlan is what to do about the marks when a decision is carried out.
type MarkPlan struct {
	// Set: pods that were proved are to be marked, after the budgets say what was decided.
	Set bool
	// Unclean: the data is not whole, and the policy says that this was long enough.
	Unclean bool
	// Most is how many pods may carry a mark: as many as the budgets count.
	Most int
	// Unset: marks have to go, while both budgets are closed. UnsetAll: all of them.
	Unset, UnsetAll bool
	// Held are nodes that jobs empty, where that decides who may have a mark.
	Held []string
}

// PlanMarks says what to do about the marks. Only at rest do they count: while a failure domain is open, or nothing is,
// a mark changes nothing, and a drain would have to write one for each pod.
func PlanMarks(in Input, d Decision) MarkPlan {
	m := in.View.Marks
	if m == nil || d.Mode != ModeDefault {
		return MarkPlan{}
	}
	if in.Settings.AtRest == storage.AtRestNone {
		marked := m.Proved+m.Stale > 0 || len(m.Foreign) > 0
		return MarkPlan{Unset: marked, UnsetAll: marked}
	}
	plan := MarkPlan{Set: m.Unproved > 0, Unclean: d.Reason == ReasonPGHealthTimeout, Unset: m.Stale > 0}
	if plan.Set { // the budget at rest counts these, and none that becomes ready while the marks are being written
		plan.Most = m.Proved + m.Unproved
	}
	return plan
}

// CloseForMarks is the closed step before marks are taken away.
func CloseForMarks(next Decision, m storage.Marks) Decision {
	d := CloseFirst(next, fmt.Sprintf("marks of %d pods have to go first", m.Stale))
	if len(m.Foreign) > 0 {
		d.Message += " (" + strings.Join(m.Foreign, ", ") + " carry the mark of another pod)"
	}
	return d
}
