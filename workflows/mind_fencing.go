package workflows

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is the keeper's part in fencing: which Machines are held, and which one is released. What it decides is in
// internal/fencing. A keeper whose policy names no fencing knows nothing of it, and does nothing.

// Pauses after which Machines are looked at again although nothing happened.
const (
	// machinesEvery is how often a MachineDisruptionBudget is looked at: its API has one health check, which asks it
	// alone, and this is what its users were promised. It is also how soon an API is asked again that is not served.
	machinesEvery = time.Minute
	// machinesAgain is how soon a hold is tried again that could not be set, or taken away.
	machinesAgain = 5 * time.Second
	// retellFence is how often a job hears that it waits for the same reason with other words.
	retellFence = 30 * time.Second
)

// FenceNotice tells a job about its node's case.
type FenceNotice struct {
	Cluster storage.ClusterKey `json:"cluster"`
	// RunID is the first run of the job; a later workflow of the same ID ignores it.
	RunID   string        `json:"runID"`
	Stage   fencing.Stage `json:"stage"`
	Reason  string        `json:"reason,omitempty"`
	Message string        `json:"message,omitempty"`
	Against string        `json:"against,omitempty"`
	Returns int           `json:"returns,omitempty"`
	// Domain is the failure domain of the node, whose lease it may have to be released under.
	Domain storage.FailureDomain `json:"domain,omitzero"`
}

// FenceRequest is a job's wish that its node's Machine be released.
type FenceRequest struct {
	Target fencing.Target `json:"target"`
	// Healing: it was released, and fenced. The job waits for the data to be whole.
	Healing bool `json:"healing,omitempty"`
}

// FenceRef names a job's case.
type FenceRef struct {
	WorkflowID string `json:"workflowID"`
	RunID      string `json:"runID"`
	// Drop: the case is over at once. Otherwise it is when the data is whole.
	Drop bool `json:"drop,omitempty"`
}

// asCarriedOut is the decision as far as a Machine may go by it: an opening when the budgets say so next, and what goes
// without one from budgets that were closed before. early: not yet, since who went at the last moment was not seen.
func (m *mind) asCarriedOut() (d budget.Decision, early bool) {
	d = m.state.Decision
	closed := !m.observed.Settings.ManagePodBudgets
	if !closed {
		if next, _ := budget.Step(m.state.Applied, d); next.Mode != budget.ModeOpen {
			d.Open = storage.FailureDomain{} // not yet
		}
		closed = m.state.Applied != nil && m.state.Applied.Mode == budget.ModeClosed
	}
	if early = !d.Shut.IsZero() && !closed; early {
		d.Shut = storage.FailureDomain{}
	}
	return d, early
}

// fence decides what comes next about Machines, and notes it.
func (m *mind) fence(now time.Time) (s fencing.Step) {
	wanted, survey := m.observed.Settings.Fencing, m.observed.Survey
	if wanted == nil && m.state.Memory.Fencing == nil {
		return s
	}
	if survey == nil {
		survey = &fencing.Survey{Unavailable: "no look at the Machines was taken yet"}
	}
	d, early := m.asCarriedOut()
	in := m.input(now).Input
	facts, borne := fencing.Know(in, d, m.askedNodes, nil), fencing.Know(in.Bearing(), d, m.askedNodes, nil)
	borne.MonsToEnd = in.MonsToEnd()
	if m.awaitsReturns {
		facts.Silent, facts.SilentAsOf = m.state.Silent, m.state.SilentAsOf
		borne.Silent, borne.SilentAsOf = m.state.Silent, m.state.SilentAsOf
	}
	s = fencing.Next(fencing.Input{
		Now: now, Ledger: m.state.Memory.Fencing, Wanted: wanted, Facts: facts, Borne: &borne, Survey: *survey,
		Timeout: m.observed.Settings.RemediationTimeout, Regrets: m.regrets, HoldsAnew: m.bears,
		Waits: m.waits, CountsMons: m.countsLetGo,
	})
	m.state.Memory.Fencing = s.Ledger
	s.Again = m.takenAway(*survey, s)
	m.state.FencesOver = append(m.state.FencesOver, s.Over...)
	if m.fenceNext, m.fenceFailed = s.Next, survey.Unavailable; early {
		m.fenceNext = now.Add(time.Second)
	}
	m.tellOfFences(now, s)
	if most := s.Max; most != nil {
		m.maxUnavailable = most
	} else if survey.Max != nil {
		m.maxUnavailable = survey.Max
	}
	return s
}

// heldBack are nodes that are to be fenced and are held, by the last look at their Machines.
func (m *mind) heldBack() (nodes []string) {
	l, s := m.state.Memory.Fencing, m.observed.Survey
	if !m.bears || l == nil || s == nil || s.Fencing != l.Fencing || s.Unavailable != "" {
		return nil
	}
	for _, c := range l.Cases {
		if c.Stage == fencing.StageHeld && c.Override == nil &&
			slices.ContainsFunc(s.Machines, func(x fencing.Machine) bool { return x.Node == c.Node && x.Held }) {
			nodes = append(nodes, c.Node)
		}
	}
	return nodes
}

// unheld are nodes that are to be fenced and that nothing holds: they were let go, or are not held again yet.
func (m *mind) unheld() (nodes []string) {
	l, s := m.state.Memory.Fencing, m.observed.Survey
	if !m.countsLetGo || l == nil {
		return nil
	}
	for _, c := range l.Cases {
		bare := s != nil && slices.ContainsFunc(s.Machines, func(x fencing.Machine) bool {
			return x.Node == c.Node && !x.Held
		})
		if c.Stage == fencing.StageReleased || c.Stage == fencing.StageHeld && bare {
			nodes = append(nodes, c.Node)
		}
	}
	return nodes
}

// openForMachines is whose MachineDisruptionBudget lets one go, as far as is known; nil: none does. An alarm closes it
// with the budgets of the daemons, and not only after the look that follows. One that is not noted any more was taken
// away since the last look: to close it would make another one, which nobody takes away.
func (m *mind) openForMachines() *storage.Fencing {
	l, s := m.state.Memory.Fencing, m.observed.Survey
	if l == nil || !l.Budget || s == nil || s.Fencing != l.Fencing || s.Unavailable != "" {
		return nil
	}
	lets := func(most *int) bool { return most != nil && *most != 0 }
	if !lets(s.Max) && !lets(m.maxUnavailable) { // what was said since the look counts, too
		return nil
	}
	return &s.Fencing
}

// takenAway are the Machines from which somebody else took the hold. A hold that was never set is nobody's doing. Nor
// is one that this keeper took away itself, and has to set again, since daemons on the node serve once more.
func (m *mind) takenAway(seen fencing.Survey, s fencing.Step) (names []string) {
	if seen.Unavailable != "" {
		return nil
	}
	for _, name := range s.Again {
		if m.bare != nil && !slices.Contains(m.bare, name) {
			names = append(names, name)
		}
	}
	if m.bare = nil; seen.More > 0 { // not all are named
		return names
	}
	m.bare = []string{}
	for _, x := range slices.Concat(s.AtOnce, s.Remove) {
		m.bare = append(m.bare, x.Name)
	}
	for _, x := range seen.Machines {
		if !x.Held {
			m.bare = append(m.bare, x.Name)
		}
	}
	return names
}

// tellOfFences has people hear which node is held back, which one is released, and which hold was taken away.
func (m *mind) tellOfFences(now time.Time, s fencing.Step) {
	add := func(node, reason, message string, warning bool) {
		if len(m.news) < mostEventsAtOnce {
			e := activities.Event{Reason: reason, Message: storage.Clip(message, mostEvent), Warning: warning, At: now}
			m.news = append(m.news, e)
			if e.Node = node; node != "" {
				m.news = append(m.news, e)
			}
		}
	}
	for _, c := range s.News {
		switch c.Stage {
		case fencing.StageHeld:
			add(c.Node, "FencingHeld", fmt.Sprintf("%s is to be fenced (%s), and is held back: %s: %s", c.Node, c.Why, c.Reason,
				c.Message), false)
		case fencing.StageReleased:
			message := fmt.Sprintf("Machine %s of %s is released to be fenced (%s): %s", c.Machine, c.Node, c.Why, c.Message)
			if c.Against != "" {
				message += "; against it was " + c.Against
			}
			add(c.Node, "FencingReleased", message, c.Against != "")
		case fencing.StageHealing:
			add(c.Node, "FencingHealing", fmt.Sprintf("%s: %s; the data is to be whole again now", c.Node, c.Message), false)
		case fencing.StageOver:
		}
	}
	for _, name := range s.Again {
		add("", "HoldRemoved", "somebody took the hold of Machine "+name+" away; it is set again", true)
	}
}

// planHolds has the plan set what is to be set, at once, and take away what is to go, at last.
func (m *mind) planHolds(now time.Time, p *plan) {
	s, survey := p.fencing, m.observed.Survey
	if survey == nil {
		return
	}
	in := activities.HoldsInput{Cluster: m.cluster, Fencing: survey.Fencing}
	if len(s.AtOnce) > 0 && !m.inTime(now, p) {
		s.AtOnce = nil
	}
	if hold := in; len(s.Set)+len(s.AtOnce) > 0 || s.Max != nil && *s.Max == 0 {
		if hold.Set, hold.Remove = s.Set, s.AtOnce; s.Max != nil && *s.Max == 0 {
			hold.Max = s.Max
		}
		p.Hold = &hold
	}
	if survey.More > 0 && len(s.Set)+len(s.AtOnce)+len(s.Remove) > 0 {
		m.again = true
	}
	if len(s.Remove) == 0 && !s.Drop && (s.Max == nil || *s.Max == 0) {
		return
	}
	letGo := in
	if letGo.Remove, letGo.Drop = s.Remove, s.Drop; s.Max != nil && *s.Max > 0 {
		letGo.Max = s.Max
	}
	if m.observed.Settings.ManagePodBudgets {
		if p.next.Mode != budget.ModeOpen && m.state.Decision.Mode == budget.ModeOpen {
			return // the budgets are on their way to what was decided: the next step lets go
		}
		if letGo.Before = m.observed.Book; letGo.Before == nil {
			letGo.Before = budget.Book{}
		}
	}
	if m.inTime(now, p) {
		p.LetGo = &letGo
	}
}

// inTime has a plan that lets go of Machines end before the look is too old, unless it is already.
func (m *mind) inTime(now time.Time, p *plan) bool {
	if p.within == 0 {
		p.within = staleAfter - now.Sub(m.looked)
	}
	if p.within <= 0 {
		p.within, m.again = 0, true
	}
	return p.within > 0
}

// tookHolds takes in what became of the holds. What failed is tried again, and keeps nothing else waiting.
func (m *mind) tookHolds(p *plan, r activities.CarryResult) {
	for _, err := range []error{r.Held.Err(), r.LetGo.Err()} {
		if err != nil {
			m.fenceFailed = storage.Clip(err.Error(), mostReason)
			m.fenceRetry = true
		}
	}
	if p.Hold != nil && r.Held.Done() {
		m.letGo = p.Hold.Remove
	}
	if m.again = m.again || r.LetGo.Result.Moved; p.LetGo != nil && r.LetGo.Done() && !r.LetGo.Result.Moved {
		m.letGo = slices.Concat(m.letGo, p.LetGo.Remove)
	}
}

// lookAtMachinesAgain is when to look at them although nothing happens; zero: never.
func (m *mind) lookAtMachinesAgain(now time.Time) time.Time {
	survey := m.observed.Survey
	if survey == nil {
		return time.Time{}
	}
	next := m.fenceNext
	at := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	if survey.Unavailable != "" || survey.API == fencing.APIBudget {
		at(now.Add(machinesEvery))
	}
	if m.fenceRetry {
		at(now.Add(machinesAgain))
	}
	if now.Before(survey.AskedBy) {
		at(survey.AskedBy)
	}
	return next
}

// requestFence takes in that a job wants a Machine released.
func (m *mind) requestFence(now time.Time, r FenceRequest) {
	l := m.state.Memory.Fencing.Clone()
	if l == nil {
		l = &fencing.Ledger{}
	}
	if m.renews && !r.Healing {
		l.Renew(r.Target)
	}
	l.Request(now, r.Target)
	if r.Healing {
		l.Finish(r.Target.WorkflowID, r.Target.RunID)
	}
	m.state.Memory.Fencing = l
	delete(m.state.FencesTold, r.Target.RunID)
}

// endFence takes in that a job is done with its node.
func (m *mind) endFence(r FenceRef) {
	l := m.state.Memory.Fencing.Clone()
	if r.Drop {
		l.Drop(r.WorkflowID, r.RunID)
	} else {
		l.Finish(r.WorkflowID, r.RunID)
	}
	m.state.Memory.Fencing = l
}

// fenceNotice is a notice that is to be sent.
type fenceNotice struct {
	workflowID string
	notice     FenceNotice
}

// tellFences are the notices to jobs about their cases: of a new stage or reason at once, of other words now and then.
// That a Machine is released is told when its hold is gone.
func (m *mind) tellFences(now time.Time) (out []fenceNotice) {
	cases := slices.Clone(m.state.FencesOver)
	m.state.FencesOver = nil
	if l := m.state.Memory.Fencing; l != nil {
		cases = append(cases, l.Cases...)
	}
	told := map[string]Told{}
	for _, c := range cases {
		if c.Stage == fencing.StageReleased && m.holdStands(c) {
			told[c.RunID] = m.state.FencesTold[c.RunID]
			continue
		}
		to := Told{State: LeaseState(string(c.Stage) + " " + c.Reason), Words: words(c.Message), At: now}
		if last, ok := m.state.FencesTold[c.RunID]; ok && last.State == to.State &&
			(last.Words == to.Words || now.Sub(last.At) < retellFence) {
			told[c.RunID] = last
			continue
		}
		if c.Stage != fencing.StageOver {
			told[c.RunID] = to
		}
		n := FenceNotice{
			Cluster: m.cluster, RunID: c.RunID, Stage: c.Stage, Reason: c.Reason,
			Message: storage.Clip(c.Message, mostReason), Against: storage.Clip(c.Against, mostReason), Returns: c.Returns,
		}
		if len(c.Domains) > 0 {
			n.Domain = c.Domains[0]
		}
		out = append(out, fenceNotice{c.WorkflowID, n})
	}
	if m.state.FencesTold = told; len(told) == 0 {
		m.state.FencesTold = nil
	}
	return out
}

// holdStands tells whether the hold of a Machine that is released was there at the last look, and is still.
func (m *mind) holdStands(c fencing.Case) bool {
	if slices.ContainsFunc(m.letGo, func(x fencing.Machine) bool { return x.UID == c.UID }) {
		return false
	}
	return m.observed.Survey == nil || slices.ContainsFunc(m.observed.Survey.Machines, func(x fencing.Machine) bool {
		return x.UID == c.UID && x.Held
	})
}

// fencingReport is what there is to say of the holds beside the ledger.
func (m *mind) fencingReport() *activities.FencingReport {
	s := m.observed.Survey
	if s == nil || m.observed.Settings.Fencing == nil && m.state.Memory.Fencing == nil {
		return nil
	}
	r := &activities.FencingReport{Problem: m.fenceFailed, Max: m.maxUnavailable}
	note := func(names []string, more int, what string) {
		if len(names) > 0 {
			text := strings.Join(names, ", ")
			if more > 0 {
				text += fmt.Sprintf(" and %d more", more)
			}
			r.Notes = append(r.Notes, what+text)
		}
	}
	note(s.Foreign, s.MoreForeign, "held by somebody else in our way, and not ours to release: ")
	note(s.Forgotten, s.MoreForgotten, "in deletion and held, and no fence asks for their release, so that one has to be "+
		"started by hand (see the runbook of fencing): ")
	note(s.Without, s.MoreWithout, "nodes with OSDs and without a Machine, so that nothing holds them: ")
	r.Notes = append(r.Notes, s.Odd...)
	if s.Never {
		r.Notes = append(r.Notes, "a health check fences nodes that are ready, too, or disks go with a Machine, so that the "+
			"MachineDisruptionBudget never lets anybody go by itself: they go one by one, as lockkeeper releases them")
	}
	if m.maxUnavailable != nil && s.Spread != "" {
		r.Notes = append(r.Notes, fmt.Sprintf("daemons of %s are in several failure domains, so that the "+
			"MachineDisruptionBudget lets nobody go by itself: nodes go one by one, as lockkeeper releases them", s.Spread))
	}
	if spec, waits := fencing.InForce(m.observed.Settings.Fencing, m.state.Memory.Fencing); m.waits && waits != "" {
		r.Notes = append(r.Notes, fmt.Sprintf("Machines are held by %s as before, and not as the policy says by now, as "+
			"long as a node is to be fenced (%s): between the two nothing would hold it", spec.API, waits))
	}
	r.Problem = cmp.Or(r.Problem, s.Unavailable)
	return r
}
