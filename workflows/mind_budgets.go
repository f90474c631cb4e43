package workflows

import (
	"reflect"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/doubt"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what the budgets are to say, and what is known of what they say.

// planBudgets says what the budgets are to say next, and the marks with them.
func (m *mind) planBudgets(now time.Time, p *plan) {
	if !m.observed.Settings.ManagePodBudgets {
		return
	}
	next, more := budget.Step(m.state.Applied, m.state.Decision)
	p.marks = m.verdict.Marks
	if p.marks.Unset && !more {
		next, more = budget.CloseForMarks(m.state.Decision, *m.observed.Seen.View.Marks), true
	}
	p.next = next
	if next.Mode == budget.ModeDefault && m.marking && !m.says(next) {
		// A mark that is written late must find a budget that counts it. The end of the marking is a reason to look.
		p.haltsMarking = true
		if m.state.Applied == nil || m.state.Applied.Mode == budget.ModeClosed {
			m.sayClosed("the marks that are being written have to be done first")
		}
		return
	}
	m.again = more
	if m.state.Conflict == "" && m.says(next) && (m.undoubted() || m.seenAsApplied()) {
		m.state.Applied = &next
		m.sawBudgets()
		return
	}
	p.within, p.Closes = staleAfter, next.Mode == budget.ModeClosed
	if !p.Closes { // it is never too late to close
		if p.within -= now.Sub(m.looked); p.within <= 0 {
			m.again, p.within = true, 0
			return
		}
	}
	in := m.budgetInput(next)
	p.Budgets = &in
}

// tookBudgets takes in what became of the budgets.
func (m *mind) tookBudgets(p *plan, a activities.Attempt[activities.BudgetResult]) error {
	r := a.Result
	m.state.Settled = m.state.Settled || a.Done() && (r.Moved == "" || r.Late != "") // then nothing was written
	switch {
	case !a.Done():
		return a.Err()
	case r.Moved != "" && r.Conflict != "": // one is missing that cannot be made: the others stay closed
		m.state.Conflict = r.Conflict
		m.sayClosed(r.Conflict)
	case r.Late != "": // nothing opens before it knows what has closed
		m.again, m.late = true, true
		m.sayClosed(r.Late)
	case r.Moved != "": // an alarm was raised since the look, or somebody else wrote: look again
		m.again = true
	default:
		m.applied(p.next, p.asOf, r)
	}
	return nil
}

// sayClosed has the status say that nobody may go although something else was decided: what the budgets say is
// something else, or is not known.
func (m *mind) sayClosed(why string) {
	if m.state.Decision.Mode == budget.ModeClosed {
		return
	}
	closed := budget.CloseFirst(m.state.Decision, why)
	m.closed = &closed
}

// says tells whether the budgets are known to say what a decision wants.
func (m *mind) says(d budget.Decision) bool {
	return m.state.Applied != nil && reflect.DeepEqual(m.specs(*m.state.Applied), m.specs(d))
}

// specs are a decision's. There are always two budgets over the storage daemons.
func (m *mind) specs(d budget.Decision) budget.Specs {
	s := d.Specs()
	if s.Unproved == nil {
		s.Unproved = &budget.Spec{MinAvailable: budget.Everything, Key: s.Daemons.Key, Except: s.Daemons.Except}
	}
	return s
}

// undoubted: nothing has happened since they were written that could mean that somebody changed the budgets.
func (m *mind) undoubted() bool { return m.state.AppliedAsOf >= m.state.Doubts.Budgets }

// sawBudgets takes note that the budgets need no write. What was seen of them is as of the beginning of the look: a
// budget of somebody else that appeared during it takes another one.
func (m *mind) sawBudgets() {
	asOf := m.state.Doubts.Last
	if m.datesLooks && !m.undoubted() && m.lookAsOf < m.state.Doubts.Budgets {
		asOf, m.again = m.lookAsOf, true
	}
	m.state.AppliedAsOf = asOf
}

// seenAsApplied tells whether the last look saw the budgets as they were last written, and none of somebody else that
// could cover the same pods: then there is nothing to write. An opening that may still be on its way has to be fenced
// off by a write, whatever the budgets say.
func (m *mind) seenAsApplied() bool {
	return m.state.Settled && !m.observed.OtherBudgets && len(m.observed.Book) > 0 &&
		m.observed.Book.Same(m.state.AppliedBook)
}

// policy is the policy as the last look saw it.
func (m *mind) policy() activities.PolicyVersion {
	return activities.PolicyVersion{UID: m.observed.UID, Generation: m.observed.Generation}
}

// budgetInput has the budgets say what a decision wants.
func (m *mind) budgetInput(d budget.Decision) activities.BudgetInput {
	in := activities.BudgetInput{Cluster: m.cluster, Policy: m.policy(), Specs: m.specs(d)}
	in.Fence = !m.state.Settled && !in.LetsGo()
	if in.LetsGo() {
		in.Before = m.observed.Book
		if in.Before == nil {
			in.Before = budget.Book{}
		}
	}
	return in
}

// applied takes note of what the budgets say, as of a doubt.
func (m *mind) applied(d budget.Decision, asOf doubt.Seq, r activities.BudgetResult) {
	m.state.Conflict, m.state.Applied, m.state.AppliedAsOf, m.state.AppliedBook = r.Conflict, &d, asOf, r.Book
}

// otherBudgets are the nodes by which the budgets of the other daemons go, if they are to be updated. They depend on
// little that changes.
func (m *mind) otherBudgets(now time.Time) *activities.LeavingNodes {
	leaving := activities.LeavingNodes{
		Emptying: m.verdict.Emptying, Granted: budget.GrantedNodes(m.state.Memory.Lease), Stay: m.verdict.Stay,
	}
	if m.observed.Seen.View.Unavailable != "" { // nobody knows who must stay
		leaving.Stay = m.leaving.Stay
	}
	same := slices.Equal(leaving.Emptying, m.leaving.Emptying) && slices.Equal(leaving.Granted, m.leaving.Granted) &&
		slices.Equal(leaving.Stay, m.leaving.Stay)
	if seen := m.observed.Seen.View.At; m.verdict.Unheld && !seen.Equal(m.heldAsOf) { // somebody took away what held them
		m.heldAsOf, m.daemonsDue = seen, true
	}
	if !m.observed.Settings.ManagePodBudgets || (!m.daemonsDue && same) {
		return nil
	}
	concerned := m.daemonsDue || now.Sub(m.othersAsOf) > othersLast || m.concernsOthers(m.leaving) ||
		m.concernsOthers(leaving)
	if m.leaving = leaving; !concerned {
		return nil
	}
	m.daemonsDue = false
	return &leaving
}

// planRelocation says what becomes of the data on nodes that are leaving, once the budgets let nobody go any more to
// whom it may be moved.
func (m *mind) planRelocation(p *plan) {
	wants := m.verdict.Relocate
	if wants == nil || !m.observed.Settings.ManagePodBudgets || m.relocated != nil && slices.Equal(wants, m.relocated) {
		return
	}
	if p.Budgets != nil || m.says(m.state.Decision) {
		p.Relocate = &activities.RelocateInput{Cluster: m.cluster, Policy: m.policy(), Nodes: wants}
	}
}

// movesAgain is how soon it is tried again to have data moved after that was refused.
const movesAgain = time.Minute

// tookRelocation takes in what became of it.
func (m *mind) tookRelocation(p *plan, a activities.Attempt[activities.RelocateResult]) {
	if p.Relocate == nil || !a.Begun {
		return
	}
	m.relocated, m.unmoved = nil, a.Result.Refused
	if a.Done() && m.unmoved == "" {
		m.relocated = append([]storage.Relocation{}, p.Relocate.Nodes...)
	}
}

// moveAgain is when it is tried again; zero: there is no need.
func (m *mind) moveAgain(now time.Time) (at time.Time) {
	if m.unmoved != "" {
		at = now.Add(movesAgain)
	}
	return at
}

// othersLast is for how long it counts where the other daemons are. That one has moved is told by the watcher, which
// may be dead, and then a manager on a node that is to be emptied would keep it for ever.
const othersLast = time.Minute

// putOff leaves the budgets of the other daemons, and what holds autoscalers back, to the step that follows at once on
// a write of the budgets that decide: for those somebody waits.
func (m *mind) putOff(p *plan) {
	if m.putsOff && m.again && p.Budgets != nil && p.Others != nil {
		p.Others, m.daemonsDue = nil, true
	}
}

// concernsOthers tells whether the budgets of the other daemons may depend on these nodes' leaving. That such a daemon
// has moved to another node is a reason of its own to update them.
func (m *mind) concernsOthers(n activities.LeavingNodes) bool {
	host := func(node string) bool { return m.others[node] }
	return m.others == nil || slices.ContainsFunc(n.Emptying, host) || slices.ContainsFunc(n.Granted, host)
}

// tookOthers takes in what became of the budgets of the other daemons, and on which nodes those are.
func (m *mind) tookOthers(now time.Time, a activities.Attempt[activities.StaticBudgetsResult]) {
	m.daemonsDue = m.daemonsDue || a.Err() != nil
	if !a.Done() {
		return
	}
	if m.others, m.othersAsOf = nil, now; a.Result.HostsKnown {
		m.others = map[string]bool{}
		for _, node := range a.Result.Hosts {
			m.others[node] = true
		}
	}
}

// opened is the failure domain that the budgets leave open, as far as is known, and the label values that they leave
// out for it. Where lockkeeper has no budgets, what was decided is what is in force.
func (m *mind) opened() (storage.FailureDomain, []string) {
	d := m.inForce()
	if d == nil || d.Mode != budget.ModeOpen {
		return storage.FailureDomain{}, nil
	}
	return d.Open, d.Budget.Except
}

// inForce is the decision that the budgets follow now; nil: not known. Where lockkeeper has no budgets, the last
// decision is in force.
func (m *mind) inForce() *budget.Decision {
	if !m.observed.Settings.ManagePodBudgets {
		return &m.state.Decision
	}
	return m.state.Applied
}

// said is the decision as it is in force: nothing that was decided is, once the keeper has closed after it.
func (m *mind) said() budget.Decision {
	if m.closed != nil {
		return *m.closed
	}
	return m.state.Decision
}
