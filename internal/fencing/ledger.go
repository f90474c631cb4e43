package fencing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is the keeper's ledger of holds: what it notes before it does it, and what it does next. A look lists the
// Machines about which there is something to do, Sift leaves out the others, and Next decides.

// Ledger is what the keeper of a policy remembers of fencing. It is written down before what it describes is done.
type Ledger struct {
	// Fencing is how and where what is noted here was set. When the policy says something else by now, all of it is
	// taken away first.
	storage.Fencing
	// Held are the keys of the Machines that carry a hold of ours, or are about to, in order: see Key.
	Held []string `json:"held,omitempty"`
	// Budget: a MachineDisruptionBudget of ours is there, or is about to be.
	Budget bool   `json:"budget,omitempty"`
	Cases  []Case `json:"cases,omitempty"`
}

// Stage is where a case stands.
type Stage string

// The stages of a case.
const (
	StageHeld     Stage = "Held"     // its Machine is held, and the case waits
	StageReleased Stage = "Released" // its Machine may be fenced
	StageHealing  Stage = "Healing"  // it was fenced, or need not be any more, and the data is not known to be whole yet
	StageOver     Stage = "Over"     // never kept: what the job hears when its case is over
)

// Case is a node that is to be fenced, from when its job asks until the data is whole again.
type Case struct {
	Target
	Stage Stage `json:"stage"`
	// Machine and UID are what was released, At when. Free: the node hosts nothing, so that nobody waits for it.
	Machine string    `json:"machine,omitempty"`
	UID     string    `json:"uid,omitempty"`
	At      time.Time `json:"at,omitzero"`
	Free    bool      `json:"free,omitempty"`
	// Returns is how often a release was taken back since nobody fenced the node.
	Returns int `json:"returns,omitempty"`
	// Reason and Message say why it waits, or was released; Against is what an override passed over.
	Reason  string                  `json:"reason,omitempty"`
	Message string                  `json:"message,omitempty"`
	Against string                  `json:"against,omitempty"`
	Domains []storage.FailureDomain `json:"domains,omitempty"` // of what the node hosts, or did when it was released
}

// Reasons of a case beside those of a verdict.
const (
	ReasonNotFenced = "NotFenced" // it was released, and nobody fenced it in time: held again
	ReasonFenced    = "Fenced"    // its Machine is gone, or its node is back
	ReasonNotHeld   = "NotHeld"   // the policy holds nothing any more
	ReasonNoMachine = "NoMachine" // no Machine has this node, so that nothing holds it
)

// Key is how a Machine is noted: the first 48 random bits of its UID. A thousand Machines are 14 KB in a status then.
func Key(uid string) string { return uid[:min(len(uid), 13)] }

// None tells whether nothing is noted.
func (l *Ledger) None() bool { return l == nil || len(l.Held)+len(l.Cases) == 0 && !l.Budget }

func (l *Ledger) holds(uid string) bool {
	_, found := slices.BinarySearch(l.Held, Key(uid))
	return found
}

// Clone is a copy that shares nothing that changes.
func (l *Ledger) Clone() *Ledger {
	if l == nil {
		return nil
	}
	c := *l
	c.Held, c.Cases = slices.Clone(l.Held), slices.Clone(l.Cases)
	return &c
}

// Covers tells whether whoever knows only l would miss nothing that m notes. What a case waits for it finds out again.
func (l *Ledger) Covers(m *Ledger) bool {
	if m.None() {
		return true
	}
	if l == nil || l.Fencing != m.Fencing || m.Budget && !l.Budget {
		return false
	}
	for _, key := range m.Held {
		if _, found := slices.BinarySearch(l.Held, key); !found {
			return false
		}
	}
	for _, c := range m.Cases {
		if !slices.ContainsFunc(l.Cases, func(x Case) bool {
			return x.WorkflowID == c.WorkflowID && x.RunID == c.RunID && x.Stage == c.Stage && x.UID == c.UID &&
				x.Why == c.Why && (x.Override == nil) == (c.Override == nil)
		}) {
			return false
		}
	}
	return true
}

// Request notes what a job asks for. Asking again keeps its place, and what was released stays so.
func (l *Ledger) Request(t Target) {
	for i, c := range l.Cases {
		if c.WorkflowID == t.WorkflowID && c.RunID == t.RunID {
			if c.Since.Before(t.Since) && c.Why == t.Why {
				t.Since = c.Since
			}
			l.Cases[i].Target = t
			return
		}
	}
	// One job of a node runs at a time: what another run asked for is over.
	l.Cases = slices.DeleteFunc(l.Cases, func(c Case) bool { return c.Node == t.Node })
	l.Cases = append(l.Cases, Case{Target: t, Stage: StageHeld})
}

// Finish notes that a job need not wait for its remediator any more: the node is back, or is not to be fenced.
func (l *Ledger) Finish(workflowID, runID string) {
	if l == nil {
		return
	}
	for i, c := range l.Cases {
		if c.WorkflowID == workflowID && c.RunID == runID {
			l.Cases[i].Stage, l.Cases[i].Reason, l.Cases[i].Message = StageHealing, ReasonFenced, c.Node+" is back"
		}
	}
}

// Drop forgets the case of a job that has ended. What was released for it is held again.
func (l *Ledger) Drop(workflowID, runID string) {
	if l == nil {
		return
	}
	l.Cases = slices.DeleteFunc(l.Cases, func(c Case) bool { return c.WorkflowID == workflowID && c.RunID == runID })
}

// released are the nodes whose Machines are released; free ones, which keep nobody waiting, only if all are asked for.
func (l *Ledger) released(all bool) (nodes []string) {
	if l == nil {
		return nil
	}
	for _, c := range l.Cases {
		if c.Stage == StageReleased && (all || !c.Free) {
			nodes = append(nodes, c.Node)
		}
	}
	return nodes
}

// Nodes are those of all cases, of which a look has to say what they host.
func (l *Ledger) Nodes() (nodes []string) {
	if l == nil {
		return nil
	}
	for _, c := range l.Cases {
		nodes = append(nodes, c.Node)
	}
	return nodes
}

// UIDs are those of the Machines that were released, of which a look has to say whether they are still there.
func (l *Ledger) UIDs() (uids []string) {
	if l == nil {
		return nil
	}
	for _, c := range l.Cases {
		if c.UID != "" {
			uids = append(uids, c.UID)
		}
	}
	return uids
}

// Survey is what one look found of Machines: those about which there is something to do or to know.
type Survey struct {
	// Fencing is under which the look was taken: the ledger's, if that has to be cleared first.
	storage.Fencing
	// Unavailable says why the API could not be asked. Then all else is empty.
	Unavailable string            `json:"unavailable,omitempty"`
	Machines    []Machine         `json:"machines,omitempty"`
	Hosted      map[string]Hosted `json:"hosted,omitempty"` // by node, of Machines and of nodes without
	// Gone are the keys of noted Machines that are no more.
	Gone []string `json:"gone,omitempty"`
	// Foreign are Machines with a mark that equals ours and that nobody noted; Without are nodes that host daemons and
	// have no Machine. A few of each are named.
	Foreign     []string `json:"foreign,omitempty"`
	MoreForeign int      `json:"moreForeign,omitempty"`
	Without     []string `json:"without,omitempty"`
	MoreWithout int      `json:"moreWithout,omitempty"`
	// Held is how many Machines carry a hold of ours; More how many there is something to do about that are not named.
	Held int `json:"held,omitempty"`
	More int `json:"more,omitempty"`
	// Known: the storage cluster answered, and every daemon that is up has a known node.
	Known bool `json:"known,omitempty"`
	// Max is what the MachineDisruptionBudget says; nil: there is none of ours.
	Max *int `json:"max,omitempty"`
}

// MostMachines bounds the Machines that one look names. Those that are left have their turn in the next one.
const MostMachines = 64

const mostNamed = 5

// Found is everything that a look found, of however many Machines.
type Found struct {
	Ledger   *Ledger
	Machines []Machine
	Hosted   map[string]Hosted // of all nodes that host daemons
	Known    bool
	// Nodes and UIDs are asked for in any case.
	Nodes, UIDs []string
	// Ending: holds are only to be taken away.
	Ending bool
}

// Sift leaves out the Machines about which there is nothing to do: those that are held by us and host what serves, and
// those that host nothing and are not held.
func Sift(f Found) Survey {
	s := Survey{Known: f.Known, Hosted: map[string]Hosted{}}
	l := f.Ledger
	if l == nil {
		l = &Ledger{}
	}
	there, hosts := map[string]bool{}, map[string]bool{}
	for _, m := range f.Machines {
		there[Key(m.UID)], hosts[m.Node] = true, true
		h, ours := f.Hosted[m.Node], l.holds(m.UID)
		asked := slices.Contains(f.Nodes, m.Node) && m.Node != "" || slices.Contains(f.UIDs, m.UID)
		if m.Held && ours {
			s.Held++
		}
		switch {
		case asked:
		case m.Held && !ours && !f.Ending:
			s.Foreign, s.MoreForeign = named(s.Foreign, s.MoreForeign, m.Name)
			continue
		case m.Held && ours && h.Running+h.Mon > 0 && !f.Ending:
			continue
		case !m.Held && !ours && (f.Ending || h.Daemons+h.Mon == 0):
			continue
		case len(s.Machines) >= MostMachines:
			s.More++
			continue
		}
		s.Machines = append(s.Machines, m)
		s.Hosted[m.Node] = h
	}
	for _, key := range l.Held {
		if !there[key] && len(s.Gone) < MostMachines {
			s.Gone = append(s.Gone, key)
		}
	}
	if f.Known && !f.Ending {
		nodes := slices.Sorted(maps.Keys(f.Hosted)) //workflowcheck:ignore sorted before anybody sees the order
		for _, node := range nodes {
			if f.Hosted[node].Daemons > 0 && !hosts[node] {
				s.Without, s.MoreWithout = named(s.Without, s.MoreWithout, node)
			}
		}
	}
	slices.SortFunc(s.Machines, func(a, b Machine) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

func named(names []string, more int, name string) ([]string, int) {
	if len(names) == mostNamed {
		return names, more + 1
	}
	return append(names, name), more
}

// Input is all that the next step depends on.
type Input struct {
	Now    time.Time
	Ledger *Ledger
	// Wanted is what the policy says; nil: nothing is to be held.
	Wanted *storage.Fencing
	Facts  Facts // Released is the ledger's
	Survey Survey
	// Timeout is how long a remediator may take before a release is taken back.
	Timeout time.Duration
}

// Step is what to do next: first write the ledger down, then set the holds, and then, when all else is in place, let
// go.
type Step struct {
	Ledger *Ledger
	Set    []Machine
	// AtOnce and Remove are Machines that are let go. Those AtOnce were released, by hand or since no daemon of their
	// nodes serves: whatever else may go, they take nothing, so they wait for nothing.
	AtOnce []Machine
	Remove []Machine
	// Max is what the MachineDisruptionBudget is to say; nil: nothing has to be written. Drop: it is to be deleted.
	Max  *int
	Drop bool
	// Over are cases that end now. News are those whose stage or reason has changed, with the new one.
	Over []Case
	News []Case
	// Again are Machines whose hold somebody took away.
	Again []string
	// Next is when a decision could change although nothing happens; zero: never.
	Next time.Time
}

// Next decides. It changes nothing of what it is given.
func Next(in Input) Step {
	before := in.Ledger
	s := Step{Ledger: before.Clone()}
	ending := in.Wanted == nil || !before.None() && before.Fencing != *in.Wanted
	if s.Ledger == nil {
		s.Ledger = &Ledger{}
	}
	if in.Wanted != nil && len(s.Ledger.Held) == 0 && !s.Ledger.Budget {
		s.Ledger.Fencing, ending = *in.Wanted, false
	}
	// A look under another API, or one that failed, tells nothing of these Machines.
	seen := in.Survey.Unavailable == "" && in.Survey.Fencing == s.Ledger.Fencing
	if seen {
		s.follow(in)
	}
	f := in.Facts
	if !seen {
		f.AskedFor = nil // nothing is released unless it is known what is held
	}
	s.judge(in, f, ending, seen)
	if seen {
		s.plan(in, ending)
	}
	s.budget(in, f, ending, seen)
	if ending {
		s.revoke()
	}
	if ending && s.Ledger.None() {
		s.Ledger = nil
	}
	s.news(before)
	return s
}

// follow takes in what has become of those that were released.
func (s *Step) follow(in Input) {
	for i := range s.Ledger.Cases {
		c := &s.Ledger.Cases[i]
		if c.Stage != StageReleased {
			continue
		}
		there := slices.ContainsFunc(in.Survey.Machines, func(m Machine) bool { return m.UID == c.UID })
		switch end := c.At.Add(in.Timeout); {
		case !there:
			c.Stage, c.Reason = StageHealing, ReasonFenced
			c.Message = fmt.Sprintf("Machine %s is gone", c.Machine)
		case in.Timeout > 0 && !in.Now.Before(end):
			// Behind those that wait: it had its turn.
			c.Stage, c.Since, c.At, c.Override = StageHeld, in.Now, time.Time{}, nil
			c.Returns++
		case in.Timeout > 0 && (s.Next.IsZero() || end.Before(s.Next)):
			s.Next = end
		}
	}
}

// judge releases one at most.
func (s *Step) judge(in Input, f Facts, ending, seen bool) {
	f.Released = s.Ledger.released(false)
	var targets []Target
	for i := range s.Ledger.Cases {
		c := &s.Ledger.Cases[i]
		if c.Stage == StageReleased && seen && marked(in.Survey, *c) {
			// Decided, but not carried out yet: it has to hold still.
			alone := f
			alone.Released = slices.DeleteFunc(slices.Clone(f.Released), func(n string) bool { return n == c.Node })
			if v := Judge(alone, c.Target); v.Action != Release {
				c.Stage, c.At = StageHeld, time.Time{}
				f.Released = alone.Released
			}
		}
		if c.Stage == StageHeld {
			targets = append(targets, c.Target)
		}
	}
	_, verdicts := Choose(f, targets)
	for i := range s.Ledger.Cases {
		c := &s.Ledger.Cases[i]
		if c.Stage != StageHeld {
			continue
		}
		v := verdicts[c.Node]
		c.Reason, c.Message, c.Against, c.Domains = v.Reason, v.Message, v.Against, v.Takes.Domains
		if v.Action != Release || ending {
			continue
		}
		m, found := machineOf(in.Survey, c.Node)
		if !found {
			c.Reason, c.Message = ReasonNoMachine, "no Machine has "+c.Node+", so that nothing holds it"
			continue
		}
		c.Stage, c.Machine, c.UID, c.At = StageReleased, m.Name, m.UID, in.Now
		c.Free = v.Free
		if end := in.Now.Add(in.Timeout); in.Timeout > 0 && (s.Next.IsZero() || end.Before(s.Next)) {
			s.Next = end
		}
	}
	s.Ledger.Cases = slices.DeleteFunc(s.Ledger.Cases, func(c Case) bool {
		if c.Stage != StageHealing || !healed(f, c) {
			return false
		}
		c.Stage, c.Message = StageOver, "the data is whole"
		s.Over = append(s.Over, c)
		return true
	})
}

// healed tells whether the data is whole after a fence, and nothing in the failure domains of the node is hurt.
func healed(f Facts, c Case) bool {
	return f.View.Unavailable == "" && f.Clean &&
		!slices.ContainsFunc(f.Hurt, func(d storage.FailureDomain) bool { return slices.Contains(c.Domains, d) })
}

func marked(s Survey, c Case) bool {
	return slices.ContainsFunc(s.Machines, func(m Machine) bool { return m.UID == c.UID && m.Held })
}

func machineOf(s Survey, node string) (Machine, bool) {
	for _, m := range s.Machines {
		if m.Node == node {
			return m, true
		}
	}
	return Machine{}, false
}

// plan says which holds to set and to take away. What is no longer held is forgotten when a look has seen that.
func (s *Step) plan(in Input, ending bool) {
	rest := Rest{
		Machines: in.Survey.Machines, Hosted: in.Survey.Hosted, Known: in.Survey.Known, Clean: in.Facts.Clean,
		Released: s.Ledger.released(true), Ending: ending,
	}
	for _, m := range in.Survey.Machines {
		if s.Ledger.holds(m.UID) {
			rest.Noted = append(rest.Noted, Hold{Machine: m.Name, UID: m.UID, Node: m.Node})
		}
	}
	p := PlanHolds(rest)
	s.Set, s.Again = p.Set, p.Again
	for _, m := range p.Remove {
		if s.Ledger.waitsForNothing(m.UID) {
			s.AtOnce = append(s.AtOnce, m)
		} else {
			s.Remove = append(s.Remove, m)
		}
	}
	for _, h := range p.Note {
		if at, found := slices.BinarySearch(s.Ledger.Held, Key(h.UID)); !found {
			s.Ledger.Held = slices.Insert(s.Ledger.Held, at, Key(h.UID))
		}
	}
	forget := slices.Clone(in.Survey.Gone)
	for _, h := range p.Forget {
		if !slices.ContainsFunc(p.Remove, func(m Machine) bool { return m.UID == h.UID }) {
			forget = append(forget, Key(h.UID))
		}
	}
	s.Ledger.Held = slices.DeleteFunc(s.Ledger.Held, func(key string) bool { return slices.Contains(forget, key) })
}

// waitsForNothing tells whether a Machine was released by hand, or takes nothing with it: no daemon that serves, nor
// disks.
func (l *Ledger) waitsForNothing(uid string) bool {
	return slices.ContainsFunc(l.Cases, func(c Case) bool {
		harmless := !c.DisksGo && (c.Reason == ReasonTakesNothing || c.Reason == ReasonHostsNothing)
		return c.Stage == StageReleased && c.UID == uid && (harmless || c.Reason == ReasonOverridden)
	})
}

// revoke ends all cases: nothing is held any more.
func (s *Step) revoke() {
	for _, c := range s.Ledger.Cases {
		c.Stage, c.Reason, c.Message = StageOver, ReasonNotHeld, "the policy holds no Machines any more"
		s.Over = append(s.Over, c)
	}
	s.Ledger.Cases = nil
}

// budget says what the MachineDisruptionBudget is to say, where there is one.
func (s *Step) budget(in Input, f Facts, ending, seen bool) {
	switch {
	case s.Ledger.API != APIBudget || !seen:
	case ending && in.Survey.Max != nil:
		s.Drop = true
	case ending:
		s.Ledger.Budget = false
	default:
		f.Released = s.Ledger.released(false)
		most := MaxUnavailable(f)
		s.Ledger.Budget = true
		if in.Survey.Max == nil || *in.Survey.Max != most {
			s.Max = &most
		}
	}
}

// APIBudget is the API whose Machines are held by a MachineDisruptionBudget.
const APIBudget = "MachineDisruptionBudget"

// news finds the cases that stand elsewhere than before.
func (s *Step) news(before *Ledger) {
	var was []Case
	if before != nil {
		was = before.Cases
	}
	if s.Ledger == nil {
		return
	}
	for _, c := range s.Ledger.Cases {
		if !slices.ContainsFunc(was, func(x Case) bool {
			return x.WorkflowID == c.WorkflowID && x.RunID == c.RunID && x.Stage == c.Stage && x.Reason == c.Reason
		}) {
			s.News = append(s.News, c)
		}
	}
}
