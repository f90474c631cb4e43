package monplan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/quorum"
)

// This file decides which step begins when none is under way. What is broken comes first: dead mons, then missing ones,
// then changed pods, and moves last, which wait until all mons are in quorum.
func (s Seen) begin() Step {
	if s.Elsewhere != "" {
		return Step{
			Verdict: Refuse,
			Why:     s.Elsewhere + " looks after these mons: lockkeeper stands aside, and changes none of them",
		}
	}
	for _, decide := range []func() (Step, bool){s.failOver, s.add, s.restart, s.awaitAll, s.remove, s.migrate} {
		if step, decided := decide(); decided {
			return step
		}
	}
	if why := s.renewsLater(); why != "" {
		return Step{Verdict: Wait, Why: why}
	}
	return Step{Verdict: Done, Why: s.left()}
}

// failOver replaces the first dead mon that may be replaced. One whose loss leaves enough is removed only.
func (s Seen) failOver() (Step, bool) {
	for _, m := range s.theDead() {
		if s.spared(m) != "" {
			continue
		}
		w := Work{Kind: FailOver, Old: m.Name, Newcomer: s.newName(), Generation: s.Want.Generation}
		why := fmt.Sprintf("mon.%s is dead: out of quorum since %s", m.Name, m.OutSince.UTC().Format(time.RFC3339))
		if m.NodeGone {
			why = fmt.Sprintf("mon.%s is dead: its node %s is deleted, with its store", m.Name, m.Node)
		}
		if s.Monmap().Living() >= s.Want.Count {
			w.Kind, w.Newcomer = Remove, ""
		}
		return s.start(w, why), true
	}
	return Step{}, false
}

// spared is why a dead mon is not replaced now; "": it is.
func (s Seen) spared(m Mon) string {
	if m.Drain != "" {
		return fmt.Sprintf("mon.%s is out of quorum, and %s has its node", m.Name, m.Drain)
	}
	if by := s.runByOthers(m.Name); by != "" {
		return fmt.Sprintf("mon.%s is out of quorum, and %s", m.Name, by)
	}
	return s.Monmap().MayRemove(m.Name).Reason
}

// runByOthers is why a mon is not lockkeeper's to take away; "": it is.
func (s Seen) runByOthers(mon string) string {
	m, _ := s.mon(mon)
	if m.RunBy == "" {
		return ""
	}
	return m.RunBy + " runs it and would start it again: lockkeeper moves and replaces only mons with a Deployment each"
}

// add makes a missing mon.
func (s Seen) add() (Step, bool) {
	if len(s.Mons) >= s.Want.Count {
		return Step{}, false
	}
	name := s.newName()
	why := fmt.Sprintf("the monmap has %d mons, and the spec says %d", len(s.Mons), s.Want.Count)
	if a := s.Monmap().MayJoin(name); !a.OK {
		until := time.Time{}
		if _, dies := s.out(); dies.After(s.Now) {
			until = dies
		}
		return Step{Verdict: Wait, Why: why + "; " + a.Reason, Until: until}, true
	}
	if a := s.place("", false); !a.OK {
		return Step{Verdict: Wait, Why: why + "; " + a.Reason}, true
	}
	return s.start(Work{Kind: Add, Newcomer: name, Generation: s.Want.Generation}, why), true
}

// restart gives a mon a new pod. One that is out of quorum comes first: the template may be what it lacks.
func (s Seen) restart() (Step, bool) {
	mons := slices.Clone(s.Mons)
	slices.SortFunc(mons, func(a, b Mon) int {
		if a.Alive != b.Alive {
			return toInt(a.Alive) - toInt(b.Alive)
		}
		return compareNames(a.Name, b.Name)
	})
	for _, m := range mons {
		if m.Template == "" || m.Template == s.Want.Template || m.Drain != "" || m.NodeGone || m.Unheard != "" {
			continue
		}
		why := "mon." + m.Name + " has another pod template than the spec"
		if i := slices.IndexFunc(mons, func(x Mon) bool { return x.Renewing && x.Name != m.Name }); i >= 0 && m.Alive {
			return Step{Verdict: Wait, Why: why + "; the pod of mon." + mons[i].Name + " is being replaced"}, true
		}
		if m.Alive && !s.Monmap().EveryZoneUp().OK {
			continue // awaitAll says why
		}
		lost := s.Want.AllowQuorumLoss && len(s.Mons) <= 2
		if a := s.Monmap().MayStop(m.Name); !a.OK && !lost {
			return Step{Verdict: Refuse, Why: why + "; " + a.Reason}, true
		}
		return s.start(Work{Kind: Restart, Old: m.Name, Generation: s.Want.Generation}, why), true
	}
	return Step{}, false
}

// renewsLater is why a mon has no pod of the spec's template yet: its node is not ready, so that nobody would end
// the one that it has. Whoever held the lease meanwhile would keep it for as long as that.
func (s Seen) renewsLater() string {
	for _, m := range s.Mons {
		switch {
		case m.Unheard == "" || m.Template == "":
		case m.Template != s.Want.Template:
			return fmt.Sprintf("mon.%s has another pod template than the spec; its node %s is not ready", m.Name, m.Unheard)
		case m.Renewing:
			return fmt.Sprintf("the pod of mon.%s is being replaced; its node %s is not ready", m.Name, m.Unheard)
		}
	}
	return ""
}

// awaitAll begins nothing else while a mon is out of quorum.
func (s Seen) awaitAll() (Step, bool) {
	why, until := s.out()
	if why == "" {
		return Step{}, false
	}
	for _, m := range s.theDead() {
		if spared := s.spared(m); spared != "" {
			return Step{Verdict: Wait, Why: spared}, true
		}
	}
	return Step{Verdict: Wait, Why: why + "; it is replaced if it stays so", Until: until}, true
}

// remove takes a superfluous mon out.
func (s Seen) remove() (Step, bool) {
	names := s.superfluous()
	if !s.Mode.Migrate || len(names) == 0 {
		return Step{}, false
	}
	why := fmt.Sprintf("mon.%s is superfluous: the monmap has %d mons, and the spec says %d", names[0], len(s.Mons),
		s.Want.Count)
	if by := s.runByOthers(names[0]); by != "" {
		return Step{Verdict: Refuse, Why: why + "; " + by}, true
	}
	if a := s.Monmap().MayReplace(names[0]); !a.OK {
		return Step{Verdict: Refuse, Why: why + "; " + a.Reason}, true
	}
	return s.start(Work{Kind: Remove, Old: names[0], Generation: s.Want.Generation}, why), true
}

// migrate moves the first mon that is not as the spec says and for whose successor there is a place.
func (s Seen) migrate() (Step, bool) {
	different := s.Different()
	if !s.Mode.Migrate || len(different) == 0 {
		return Step{}, false
	}
	var refused []string
	waits := ""
	for _, d := range different {
		if slices.Contains(s.Failed, d.Mon) {
			refused = append(refused, d.String()+"; its successor did not come into quorum, and was taken back")
			continue
		}
		w := Work{Kind: Migrate, Old: d.Mon, Newcomer: s.newName(), Generation: s.Want.Generation}
		join, place := s.Monmap().MayJoin(w.Newcomer), s.place(d.Mon, false)
		if join.OK && place.OK {
			return s.start(w, d.String()), true
		}
		if join.OK && waits == "" && s.placeLater(d.Mon) {
			waits = d.String() + "; " + place.Reason
		}
		instead, oneLess := s.place(d.Mon, true), s.Monmap().MayOneLess(d.Mon)
		switch {
		case !join.OK:
			refused = append(refused, d.String()+"; "+join.Reason)
		case !instead.OK:
			refused = append(refused, d.String()+"; "+instead.Reason)
		case !oneLess.OK:
			refused = append(refused, d.String()+"; "+place.Reason+"; "+oneLess.Reason)
		case !s.Mode.OneLess:
			refused = append(refused, fmt.Sprintf("%s; %s; with --one-less mon.%s would leave before its successor joins, and "+
				"for that time none of the other %d mons could be spared", d, place.Reason, d.Mon, len(s.Mons)-1))
		default:
			w.Kind = OneLess
			return s.start(w, d.String()), true
		}
	}
	if waits != "" { // nobody would go on when the node is back
		return Step{Verdict: Wait, Why: waits}, true
	}
	return Step{Verdict: Refuse, Why: refused[0]}, true
}

// left is what a person may want to do when nothing is left to do by itself.
func (s Seen) left() string {
	var parts []string
	for _, d := range s.Different() {
		parts = append(parts, d.String())
	}
	for _, name := range s.superfluous() {
		parts = append(parts, "mon."+name+" is superfluous")
	}
	if len(parts) == 0 {
		return ""
	}
	// A person who was refused finds out here why: a look that nobody asked for may come right after the refusal.
	if asked := s.asked(); asked.Verdict == Refuse {
		return "`lockkeeper migrate-mons` is refused: " + asked.Why
	}
	return strings.Join(parts, "; ") + "; `lockkeeper migrate-mons` moves and removes mons"
}

// asked is what would come next if a person had asked for it.
func (s Seen) asked() Step {
	if s.Mode.Migrate {
		return Step{}
	}
	s.Mode.Migrate, s.Failed = true, nil
	return s.begin()
}

// start is the first look at a step that begins.
func (s Seen) start(w Work, why string) Step {
	if step, stays := s.Image.begins(w, why); stays {
		return step
	}
	s.Work = &w
	step, _ := s.goOn(w)
	if step.Why == "" {
		step.Why = why
	}
	return step
}

func (s Seen) newName() string { return NameOf(s.NextID) }

// risk is what the time costs in which a newcomer shares the zone of the mon that it replaces.
func (s Seen) risk(w Work) string {
	switch {
	case w.Kind == OneLess:
		return fmt.Sprintf("until mon.%s is in quorum none of the other %d mons may fail", w.Newcomer, len(s.Mons)-1)
	case w.Kind != Migrate || w.Zone == "":
		return ""
	}
	before := s.Monmap().Without(w.Newcomer)
	after := before.With(quorum.Mon{Name: w.Newcomer, Zone: w.Zone, Alive: true})
	for _, zone := range after.Fatal() {
		if !slices.Contains(before.Fatal(), zone) {
			return fmt.Sprintf("until mon.%s has left, the loss of zone %s costs the quorum", w.Old, zone)
		}
	}
	return ""
}
