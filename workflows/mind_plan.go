package workflows

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/doubt"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
)

// This file makes a plan of a decision, and takes in what became of it.

// plan is a decision as the steps that carry it out, and what became of them.
type plan struct {
	activities.CarryInput
	flagPlan
	next   budget.Decision
	marks  budget.MarkPlan
	asOf   doubt.Seq
	within time.Duration // from now on; 0: for as long as it takes
	// remember: the status comes first. remembered and foretold are the reports of the plan as they are kept, and news
	// what they tell.
	remember             bool
	remembered, foretold activities.Report
	news                 []activities.Event
	// wording: the report only rewords the one before.
	wording bool
	// haltsMarking: marks that are being written must end before the budgets say something else.
	haltsMarking bool
	// fencing is what comes next about Machines.
	fencing fencing.Step
	// mute is what the storage cluster gave no answer to; unsaid: the budgets do not say what was decided.
	mute   string
	unsaid bool
}

// prepare begins a plan. It takes note of what is about to be asked of the storage cluster.
func (m *mind) prepare(now time.Time) *plan {
	p := &plan{asOf: m.state.Doubts.Last}
	p.Cluster = m.cluster
	m.planFlags(now, p)
	m.letGo, m.fenceRetry = nil, false
	p.fencing = m.fence(now)
	m.askFlags(p)
	p.remember = len(m.news) > 0 || !m.state.Memory.Covered(m.state.Reported.Memory)
	return p
}

// complete says how to make the world follow the decision. reports: the status may be written on the way.
func (m *mind) complete(now time.Time, p *plan, reports bool) {
	m.switchFlags(p)
	if p.Others = m.otherBudgets(now); p.Others != nil {
		p.Policy = m.policy()
	}
	m.planBudgets(now, p)
	m.putOff(p)
	m.planRelocation(p)
	m.planOverrides(now, p)
	m.planHolds(now, p)
	if p.remember {
		p.remembered = m.draft(m.state.Reported)
		p.remembered.AsOf = now
		r := m.signed(now, p.remembered, m.state.Reported, p.take(m))
		p.Remember = &r
	}
	switch {
	case m.again && !p.isNothing():
		look := m.look().Look
		p.Look = &look
	case !m.again && reports && !p.marks.Unset && m.observed.Settings.ManagePodBudgets:
		m.foretell(now, p)
	}
}

// foretell has the status written that is true when the plan is carried out as it is meant.
func (m *mind) foretell(now time.Time, p *plan) {
	memory, conflict, before := m.state.Memory, m.state.Conflict, m.state.Reported
	if p.Remember != nil {
		before = p.remembered
	}
	if p.Budgets != nil {
		m.state.Conflict = ""
	}
	m.foretellFlags(now, p)
	r := m.draft(before)
	m.state.Memory, m.state.Conflict = memory, conflict
	if len(m.news) == 0 && reflect.DeepEqual(r, before) {
		return
	}
	r.AsOf = now
	p.foretold = r
	r = m.signed(now, r, before, p.take(m))
	p.Report, p.wording = &r, rewords(r, before)
}

// rewords tells whether a report says with other words, or other counts, what the one before said.
func rewords(r, before activities.Report) bool {
	return len(r.Events) == 0 && sameMemory(r.Memory, before.Memory)
}

// writing takes note that the budgets are about to be written. What they say is not known meanwhile, nor when the
// answer is lost.
func (m *mind) writing(in activities.BudgetInput) {
	m.state.Applied = nil
	m.state.Settled = m.state.Settled && !in.LetsGo()
}

// tookReports takes in which of a plan's reports were written.
func (m *mind) tookReports(p *plan, r activities.CarryResult) {
	if r.Remembered.Done() {
		m.state.Reported = p.remembered
	}
	if r.Reported.Done() {
		m.state.Reported = p.foretold
	}
	if !r.Remembered.Done() && !r.Reported.Done() {
		m.news = append(p.news, m.news...)
	}
}

// took takes in what became of a plan.
func (m *mind) took(now time.Time, p *plan, r activities.CarryResult) error {
	m.tookOthers(now, r.Others)
	if m.doubtsMoves && p.Relocate != nil {
		m.relocated = nil
	}
	if err := r.Remembered.Err(); err != nil {
		m.daemonsDue = m.daemonsDue || p.Others != nil
		return err
	}
	m.tookRelocation(p, r.Relocated)
	m.tookOverrides(now, p, r.TakenBack)
	m.tookHolds(p, r)
	m.switched(p.Set, r.Set)
	m.switched(p.Unset, r.Unset)
	err := m.tookBudgets(p, r.Budgets)
	p.unsaid = err != nil
	if failed := m.tookFlags(now, p, r); failed != nil {
		return failed
	}
	if r.Looked.Done() {
		m.ahead = &ahead{r.Looked.Result, p.Look.Hosts, p.Look.Nodes, p.Look.Commit, p.asOf}
	}
	return err
}

// lost takes in that nobody knows what became of a plan.
func (m *mind) lost(p *plan) {
	m.daemonsDue = m.daemonsDue || p.Others != nil
	if p.Relocate != nil {
		m.relocated = nil
	}
	if p.mute = p.lostFlags(); p.mute == "" {
		p.unsaid = p.Budgets != nil
	}
}

// take takes what people are to be told.
func (p *plan) take(m *mind) []activities.Event {
	news := m.news
	p.news, m.news = append(p.news, news...), nil
	return news
}

// onlyRewords tells whether the plan does nothing but write a report that tells nothing new.
func (p *plan) onlyRewords() bool {
	rest := *p
	rest.Report = nil
	return p.wording && rest.isNothing()
}

func (p *plan) isNothing() bool {
	return p.Remember == nil && p.Others == nil && p.Set == nil && p.Unset == nil && p.Budgets == nil && p.Report == nil &&
		p.Relocate == nil && p.Hold == nil && p.LetGo == nil && len(p.TakeBack) == 0
}

// relocation is from which nodes data is moved, in words.
func (p *plan) relocation() string {
	var away []string
	for _, r := range p.Relocate.Nodes {
		if r.Away {
			away = append(away, r.Node)
		}
	}
	if len(away) == 0 {
		return "no data is moved away from nodes that are leaving"
	}
	return "data is moved away from " + strings.Join(away, ", ")
}

// summary is what Temporal's UI shows of it, and the story of a keeper tells of its decisions.
func (p *plan) summary() string {
	switch {
	case p.Budgets != nil:
		return clip(fmt.Sprintf("%s: %s", p.next.Mode, p.next.Message))
	case p.Relocate != nil:
		return clip(p.relocation())
	case p.Set != nil || p.Unset != nil:
		return clip(p.flagsSummary())
	case p.LetGo != nil && len(p.LetGo.Remove) > 0:
		return clip("let go of Machine " + p.LetGo.Remove[0].String())
	case p.Hold != nil && len(p.Hold.Remove) > 0:
		return clip("let go of Machine " + p.Hold.Remove[0].String())
	case p.Hold != nil && len(p.Hold.Set) > 0:
		return clip(fmt.Sprintf("hold %d Machines", len(p.Hold.Set)))
	case len(p.TakeBack) > 0:
		return clip(takenBack(p.TakeBack))
	case p.Others != nil:
		return "budgets of mgr, mds, rgw, rbd-mirror"
	default:
		return "status and events"
	}
}
