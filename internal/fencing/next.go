package fencing

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/brief"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file decides what the keeper does next: what it notes in its ledger, and which holds it sets and takes away.

// Input is all that the next step depends on.
type Input struct {
	Now    time.Time
	Ledger *Ledger
	// Wanted is what the policy says; nil: nothing is to be held.
	Wanted *storage.Fencing
	Facts  Facts // Released is the ledger's
	// Borne are the same as a fence may take them, which bears with nodes that are held back; nil: as Facts. A number that
	// lets anybody go is not said by them.
	Borne  *Facts
	Survey Survey
	// Timeout is how long a remediator may take before a release is taken back.
	Timeout time.Duration
	// Regrets: a release that nobody has made use of yet is judged in each look, and in doubt what may serve is held.
	// Keepers that began earlier did neither.
	Regrets bool
	// HoldsAnew: once all is given up that was held as the policy said before, Machines are looked at again at once, to
	// hold them as it says now. Keepers that began earlier waited until something happened.
	HoldsAnew bool
	// CountsMons: a mon that its budget lets go counts as gone, and one alone on a node that nobody fences lets others
	// have their turn. Keepers that began earlier did neither.
	CountsMons bool
	// Waits: another way to hold Machines waits until no node is to be fenced. Keepers that began earlier changed at once.
	Waits bool
}

// soon is when to look again although nothing happens.
const soon = 200 * time.Millisecond

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
	if in.Waits {
		in.Wanted, _ = InForce(in.Wanted, before)
	}
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
	f, borne := in.Facts, in.Facts
	if in.Borne != nil {
		borne = *in.Borne
	}
	if !in.CountsMons {
		f.MonsGoing, borne.MonsGoing = nil, nil
	}
	if !seen { // nothing is released unless it is known what is held
		f.AskedFor, borne.AskedFor = nil, nil
	}
	s.judge(in, borne, ending, seen)
	if seen {
		s.plan(in, ending)
	}
	s.budget(in, f, ending, seen)
	if ending {
		s.revoke()
	}
	if in.Waits && seen && ending && s.Ledger.holdsAny() && len(s.Remove)+len(s.AtOnce) == 0 && !s.Drop {
		s.Next = in.Now.Add(soon) // the look did not know yet that all of these have to go
	}
	if ending && s.Ledger.None() {
		s.Ledger = nil
	}
	if in.HoldsAnew && in.Wanted != nil && in.Survey.Unavailable == "" && in.Survey.Fencing != *in.Wanted &&
		(s.Ledger == nil || s.Ledger.Fencing == *in.Wanted) {
		s.Next = in.Now.Add(soon) // nothing may ever happen to these Machines, and nobody holds them
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
		case in.Timeout > 0:
			s.Next = earlier(s.Next, end)
		}
	}
}

// pauses is until when a node with nothing but a mon is not released again, since nobody made use of its release: no
// other mon may go meanwhile, and it has no lease to give back. Zero: it does not pause.
func pauses(in Input, f Facts, c Case) time.Time {
	takes, until := f.Takes(c.Node), c.Since.Add(in.Timeout)
	alone := takes.Mon != "" && len(takes.Domains) == 0
	if !in.CountsMons || !alone || c.Returns == 0 || c.Override != nil || !in.Now.Before(until) {
		return time.Time{}
	}
	return until
}

// earlier is the first of two times; the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// judge releases one at most.
func (s *Step) judge(in Input, f Facts, ending, seen bool) {
	f.Released = s.Ledger.released(false)
	var targets []Target
	for i := range s.Ledger.Cases {
		c := &s.Ledger.Cases[i]
		if c.Stage == StageReleased && seen {
			alone := f
			alone.Released = slices.DeleteFunc(slices.Clone(f.Released), func(n string) bool { return n == c.Node })
			// What was decided, and not carried out yet, has to hold still. What was let go may be fenced later than anybody
			// thought, and must not do harm then.
			v := Judge(alone, c.Target)
			undecided := marked(in.Survey, *c) && v.Action != Release
			if undecided || in.Regrets && canBeHeldAgain(in.Survey, *c) && c.regrets(alone, v) {
				c.Stage, c.At = StageHeld, time.Time{}
				f.Released = alone.Released
				s.Ledger.note(c.UID) // so that it is held whether the storage cluster answers or not
			}
		}
		if c.Stage == StageHeld && pauses(in, f, *c).IsZero() {
			targets = append(targets, c.Target)
		}
	}
	_, verdicts := Choose(f, targets)
	for i := range s.Ledger.Cases {
		c := &s.Ledger.Cases[i]
		if c.Stage != StageHeld {
			continue
		}
		if until := pauses(in, f, *c); !until.IsZero() {
			c.Reason, c.Against = ReasonNotFenced, ""
			c.Message = "it was released, and nobody fenced it in time: others have their turn"
			s.Next = earlier(s.Next, until)
			continue
		}
		v := verdicts[c.Node]
		if in.Regrets && v.Reason == ReasonDomainOpen && c.Returns > 0 && f.grantedBefore(c.Target, c.Since) {
			v.Action, v.Reason = Wait, ReasonNotFenced
			v.Message = "it was released, and nobody fenced it in time: it gives its lease back, for others to have their turn"
		}
		c.Reason, c.Message, c.Against, c.Domains = v.Reason, v.Message, v.Against, v.Takes.Domains
		if v.Reason == ReasonMayReturn {
			s.Next = earlier(s.Next, in.Now.Add(f.mayReturn(c.Node)))
		}
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
		if in.Timeout > 0 {
			s.Next = earlier(s.Next, in.Now.Add(in.Timeout))
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
	for i := range s.Ledger.Cases {
		if c := &s.Ledger.Cases[i]; c.Stage == StageHealing {
			happened, _, _ := strings.Cut(c.Message, "; ")
			c.Message = happened + "; " + lacks(f, *c)
		}
	}
}

// lacks is what the data waits for after a fence.
func lacks(f Facts, c Case) string {
	if f.View.Unavailable != "" {
		return "nothing is known: " + f.View.Unavailable
	}
	var down []string
	for _, d := range f.View.Domains {
		if is := (storage.FailureDomain{Type: f.View.FailureDomainType, Name: d.Name}); slices.Contains(f.Hurt, is) &&
			slices.Contains(c.Domains, is) {
			for _, x := range d.Down() {
				down = append(down, x.Name)
			}
		}
	}
	if len(down) > 0 {
		return "still missing: " + brief.List(down, 8)
	}
	return "the data is not proved whole yet"
}

// healed tells whether the data is whole after a fence, and nothing in the failure domains of the node is hurt.
func healed(f Facts, c Case) bool {
	return f.View.Unavailable == "" && f.Clean &&
		!slices.ContainsFunc(f.Hurt, func(d storage.FailureDomain) bool { return slices.Contains(c.Domains, d) })
}

func marked(s Survey, c Case) bool {
	return slices.ContainsFunc(s.Machines, func(m Machine) bool { return m.UID == c.UID && m.Held })
}

// canBeHeldAgain: a Machine that was let go can, unless its deletion has begun.
func canBeHeldAgain(s Survey, c Case) bool {
	return slices.ContainsFunc(s.Machines, func(m Machine) bool { return m.UID == c.UID && !m.Deleting })
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
		Released: s.Ledger.released(true), Ending: ending, Doubtful: in.Regrets,
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
		s.Ledger.note(h.UID)
	}
	forget := slices.Clone(in.Survey.Gone)
	for _, h := range p.Forget {
		if !slices.ContainsFunc(p.Remove, func(m Machine) bool { return m.UID == h.UID }) {
			forget = append(forget, Key(h.UID))
		}
	}
	s.Ledger.Held = slices.DeleteFunc(s.Ledger.Held, func(key string) bool { return slices.Contains(forget, key) })
}

// revoke ends all cases: nothing is held any more.
func (s *Step) revoke() {
	for _, c := range s.Ledger.Cases {
		c.Stage, c.Reason, c.Message = StageOver, ReasonNotHeld, "the policy holds no Machines any more"
		s.Over = append(s.Over, c)
	}
	s.Ledger.Cases = nil
}

// APIBudget is the API whose Machines are held by a MachineDisruptionBudget.
const APIBudget = "MachineDisruptionBudget"

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
		if in.Survey.Never {
			most = 0
		}
		if in.Survey.Spread != "" { // whether its domains may stop together a number does not ask
			most = 0
		}
		s.Ledger.Budget = true
		if in.Survey.Max == nil || *in.Survey.Max != most {
			s.Max = &most
		}
	}
}

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
