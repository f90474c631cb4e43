package monplan

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file goes on with a step that is under way.

// goOn is the next act of a step. over: the step is done, or nothing is left of it.
func (s Seen) goOn(w Work) (step Step, over bool) {
	w = s.noted(s.turned(w))
	if w.Undo == "" || s.joined(w) && w.Running { // it came after all
		w.Undo = s.undoes(w)
	}
	acts := s.acts(w)
	if w.Undo != "" {
		acts = s.undo(w)
	}
	if s.Ending && w.Undo == "" {
		acts = tells(acts)
	}
	if len(acts) == 0 || s.yields(w) {
		return Step{}, true
	}
	w.Avoid = s.avoid()
	step = Step{Verdict: Move, Why: w.Undo, Work: &w, Acts: acts, Takes: s.takes(w, acts[0]), Risk: s.risk(w)}
	step.Early = w.Undo == "" && step.Takes == "" && (acts[0].Do == Schedule || acts[0].Do == ClaimVolume)
	gated := step.Together() // a canary keeps the place of a newcomer that has to wait
	if a := s.gate(w, gated[len(gated)-1]); !a.OK {
		step.Verdict, step.Why = Wait, a.Reason
		if _, dies := s.out(); dies.After(s.Now) {
			step.Until = dies
		}
	}
	return step, false
}

// noted is a step with what this look tells of its newcomer. It may be the only look at which that mon is in quorum.
func (s Seen) noted(w Work) Work {
	if m, known := s.mon(w.Newcomer); known && m.Alive {
		w.Joined = true
	}
	return w
}

// turned is a migration whose old mon has died before the newcomer was started: from then on it is a failover, and the
// dead mon leaves first.
func (s Seen) turned(w Work) Work {
	old, known := s.mon(w.Old)
	if (w.Kind == Migrate || w.Kind == OneLess) && w.Started.IsZero() && known && s.dead(old) && s.spared(old) == "" {
		w.Kind = FailOver
	}
	return w
}

// joined: the newcomer is in the monmap, and has been in quorum. From then on it is a mon like the others: it is dead
// after healthTimeout, and is not taken back.
func (s Seen) joined(w Work) bool {
	_, known := s.mon(w.Newcomer)
	return known && w.Joined
}

// OldFirst tells whether the old mon leaves before the newcomer joins.
func (w Work) OldFirst() bool { return w.Kind == FailOver || w.Kind == OneLess }

// acts are what is left of a step, in order.
func (s Seen) acts(w Work) (acts []Act) {
	add := func(when bool, do Do, mon string) {
		twice := do == SaveEndpoints && len(acts) > 0 && acts[len(acts)-1].Do == do
		if when && !twice {
			acts = append(acts, Act{Do: do, Mon: mon})
		}
	}
	_, oldThere := s.mon(w.Old)
	joined, started := s.joined(w), !w.Started.IsZero()
	remove := func() {
		add(oldThere, RemoveMon, w.Old)
		add(!w.Stopped, StopMon, w.Old)
	}
	switch w.Kind {
	case Restart:
		old, _ := s.mon(w.Old)
		add(!w.Restarted, RestartMon, w.Old)
		add(oldThere && (!w.Restarted || !w.Renewed || !old.Alive), AwaitQuorum, w.Old)
		return acts
	case TidyUp:
		add(s.misnamed() != "", SaveEndpoints, w.Old)
		return acts
	case Remove:
		remove()
	case Add, Migrate, OneLess, FailOver:
		// No mon leaves for the place of a canary that is gone: a migration may have dropped it before its old mon died.
		recalled := w.OldFirst() && oldThere && !w.Canary
		add(!joined && !started && (!w.Scheduled || recalled), Schedule, w.Newcomer)
		add(!joined && !started && (!w.Claimed || recalled), ClaimVolume, w.Newcomer)
		if w.OldFirst() {
			remove()
		}
		add(w.Canary || !joined && !started && (!w.Scheduled || recalled), DropCanary, w.Newcomer)
		add(!joined && (!started || !w.Running), Start, w.Newcomer)
		add(!joined, AwaitQuorum, w.Newcomer)
		add(!joined || !slices.Contains(s.Endpoints, w.Newcomer), SaveEndpoints, w.Newcomer)
		if w.Kind == Migrate {
			remove()
		}
	}
	add(w.Old != "" && slices.Contains(s.Endpoints, w.Old), SaveEndpoints, w.Old)
	return acts
}

// EndpointsToSave are the mons that everybody is to find: those of the monmap, but for a newcomer that was never in
// quorum.
func (s Seen) EndpointsToSave() (names []string) {
	for _, m := range s.Mons {
		if s.Work == nil || m.Name != s.Work.Newcomer || m.Alive || s.joined(*s.Work) {
			names = append(names, m.Name)
		}
	}
	slices.SortFunc(names, compareNames)
	return names
}

// undoes is why a step is rolled back; "": it goes on. A newcomer that is in quorum is never taken back.
func (s Seen) undoes(w Work) string {
	old, oldThere := s.mon(w.Old)
	switch {
	case w.Newcomer == "" || s.joined(w):
		return ""
	case s.late(w):
		return fmt.Sprintf("mon.%s was not in quorum %s after its start", w.Newcomer, s.Want.JoinTimeout)
	case w.Kind != Add && !oldThere: // the newcomer is missed
		if w.Started.IsZero() && w.Generation != s.Want.Generation {
			return "the spec was changed" // its canary may lack the volume that the spec wants now: another one is added
		}
		if w.Started.IsZero() && !s.Monmap().MayJoin(w.Newcomer).OK {
			return s.deadFirst(w) // no mon may join while the monmap has that one
		}
		return ""
	case s.Elsewhere != "":
		return s.Elsewhere + " looks after these mons now"
	case !w.Started.IsZero():
		return ""
	case w.Generation != s.Want.Generation:
		return "the spec was changed"
	case w.Kind == Add && len(s.Mons) >= s.Want.Count:
		return "no mon is missing any more"
	case w.Kind == FailOver && old.Alive:
		return fmt.Sprintf("mon.%s is in quorum again", w.Old)
	case w.Kind == FailOver && old.Drain != "":
		return fmt.Sprintf("%s has the node of mon.%s", old.Drain, w.Old)
	case w.Kind != FailOver:
		return s.deadFirst(w)
	}
	return ""
}

// late: the newcomer has had its time to join.
func (s Seen) late(w Work) bool {
	return !w.Started.IsZero() && s.Now.Sub(w.Started) >= s.Want.JoinTimeout
}

// deadFirst is which dead mon is replaced before this step goes on; "": none.
func (s Seen) deadFirst(w Work) string {
	for _, m := range s.theDead() {
		if m.Name != w.Old && (m.Name != w.Newcomer || s.joined(w)) && s.spared(m) == "" {
			return fmt.Sprintf("mon.%s is dead, and is replaced first", m.Name)
		}
	}
	return ""
}

// undo takes back what a step has made: first the newcomer out of the monmap, whatever was seen of its start, then all
// that is in Kubernetes. What has left the monmap does not come back.
func (s Seen) undo(w Work) (acts []Act) {
	if w.Kind == TidyUp { // it has taken nothing
		return nil
	}
	if _, there := s.mon(w.Newcomer); there {
		acts = append(acts, Act{RemoveMon, w.Newcomer})
	}
	if w.Running || w.Ending {
		acts = append(acts, Act{StopMon, w.Newcomer})
	}
	if w.Canary {
		acts = append(acts, Act{DropCanary, w.Newcomer})
	}
	if w.Traces && !w.Joined { // it may have joined as it ended: its store is kept then, like that of any mon that leaves
		acts = append(acts, Act{DropTraces, w.Newcomer})
	}
	if _, there := s.mon(w.Old); w.Old != "" && !there && !w.Stopped {
		acts = append(acts, Act{StopMon, w.Old})
	}
	return acts
}

// TakesOrAdds tells whether an act changes which mons there are, or which pod one has, or may take long. Whoever is
// about to stop does only what tells of such an act, or clears up after it; and only that needs not be written down
// before.
func (a Act) TakesOrAdds() bool {
	switch a.Do {
	case StopMon, DropCanary, SaveEndpoints, DropTraces:
		return false
	default:
		return true
	}
}

// tells are the first acts that take no mon and add none.
func tells(acts []Act) []Act {
	if i := slices.IndexFunc(acts, Act.TakesOrAdds); i >= 0 {
		return acts[:i]
	}
	return acts
}

// Together are the first acts of a step that need no look between them: what ends the pod of a mon that has left, and
// what tells everybody of that; or what gives back the place that a canary has kept, and what starts the newcomer
// there. Before the former there is a look: it notes where the mon's store is, which nobody knows without its
// Deployment.
func (s Step) Together() []Act {
	if len(s.Acts) < 2 || s.Acts[0].Mon != s.Acts[1].Mon {
		return s.Acts[:1]
	}
	switch [2]Do{s.Acts[0].Do, s.Acts[1].Do} {
	case [2]Do{StopMon, SaveEndpoints}, [2]Do{DropCanary, Start}:
		return s.Acts[:2]
	default:
		return s.Acts[:1]
	}
}

// TakesOrAdds tells whether one of the acts that are done together does.
func (s Step) TakesOrAdds() bool { return slices.ContainsFunc(s.Together(), Act.TakesOrAdds) }

// yields: what is left of a step has to wait, since something else comes first: a dead mon is replaced, or somebody
// else looks after the mons now. A newcomer that is in quorum stays, and so does the living mon that it was to replace.
func (s Seen) yields(w Work) bool {
	old, known := s.mon(w.Old)
	if !known || w.Undo != "" || w.Canary {
		return false
	}
	switch w.Kind {
	case Restart:
		if w.Restarted {
			return s.dead(old) || old.Unheard != ""
		}
		if s.Image.Refused != "" { // since the step began
			return true
		}
	case Migrate:
		if !s.joined(w) || !slices.Contains(s.Endpoints, w.Newcomer) {
			return false
		}
	case Remove:
		switch {
		case s.dead(old): // it is one of the dead that come first
			return s.Elsewhere != ""
		case old.Alive && (!s.Mode.Migrate || !slices.Contains(s.superfluous(), w.Old)): // it was dead, and is back
			return true
		}
	default:
		return false
	}
	return s.Elsewhere != "" || s.deadFirst(w) != ""
}

// takes is the living mon that a step takes away, or the one that joins where the mons cannot spare as many as before
// with one more in the monmap: of three one may be evicted, of four only if all live, and nobody knows yet whether the
// newcomer will. Of an even number one more takes nothing. Until the newcomer is started nothing is taken, and whoever
// waits for a node or a volume keeps nobody waiting.
func (s Seen) takes(w Work, next Act) string {
	old, known := s.mon(w.Old)
	if n := len(s.Monmap().Without(w.Newcomer)); w.Kind == Add && w.Undo == "" && !s.joined(w) {
		if next.Do == Schedule || next.Do == ClaimVolume || quorum.Majority(n+1) == quorum.Majority(n) {
			return ""
		}
		return w.Newcomer
	}
	switch {
	case w.Undo != "", w.Kind == FailOver, w.Kind == TidyUp, !known, !old.Alive && w.Kind != Restart:
		return ""
	case next.Do == Schedule, next.Do == ClaimVolume:
		return ""
	}
	return w.Old
}

// gate judges an act by the monmap as it will be after it. The adapters ask Ceph once more, right before.
func (s Seen) gate(w Work, act Act) storage.Answer {
	m := s.Monmap()
	switch act.Do {
	case Start:
		if _, there := s.mon(act.Mon); there { // it has joined before, and its Deployment was lost
			return yes()
		}
		if a := s.Image.MayHave(w.Kind); !a.OK {
			return a
		}
		if w.Kind == Migrate {
			if a := m.EveryZoneUp(); !a.OK {
				return a
			}
		}
		return m.MayJoin(act.Mon)
	case StopMon:
		if _, there := s.mon(act.Mon); act.Mon == w.Newcomer && !there && w.Running && !s.late(w) {
			if a := m.MayJoin(act.Mon); !a.OK { // it may join while it ends, and be one more that does not live
				return no("mon.%s is not stopped before its time to join is over: %s", act.Mon, a.Reason)
			}
		}
		return yes()
	case RemoveMon:
		return s.mayLeave(w, act.Mon)
	case RestartMon:
		if a := s.Image.MayHave(w.Kind); !a.OK {
			return a
		}
		if a := m.Without(act.Mon).EveryZoneUp(); !a.OK {
			return a
		}
		if s.Want.AllowQuorumLoss && len(m) <= 2 {
			return yes()
		}
		return m.MayStop(act.Mon)
	default:
		return yes()
	}
}

func (s Seen) mayLeave(w Work, name string) storage.Answer {
	m := s.Monmap()
	mon, _ := s.mon(name)
	switch {
	case name == w.Newcomer, w.Kind == FailOver, w.Kind == Remove && s.dead(mon):
		return m.MayRemove(name)
	case w.Kind == OneLess:
		if i := slices.IndexFunc(s.Mons, func(x Mon) bool { return x.Renewing && x.Name != name }); i >= 0 {
			return no("the pod of mon.%s is being replaced", s.Mons[i].Name)
		}
		return m.MayOneLess(name)
	default:
		return m.MayReplace(name)
	}
}

// Noted is the work as it is written down before the first act of a step: a newcomer counts as started from the moment
// in which it may be, since whoever dies right after that cannot say whether it was.
func (s Step) Noted(now time.Time) Work {
	w := *s.Work
	if slices.ContainsFunc(s.Together(), func(a Act) bool { return a.Do == Start }) && w.Started.IsZero() {
		w.Started = now
	}
	return w
}
