package rollout

import (
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/lease"
)

// This file decides about daemons that somebody wants gone and that the guard of deletions has wait: mons, too.

// IsMon tells whether a name is that of a mon.
func IsMon(name string) bool { return strings.HasPrefix(name, "mon.") }

// NextWaiting keeps OSDs back while mons wait or come back, which go one by one. OSDs that nobody hears are not kept
// back: until they have started anew no mon of another failure domain gets its turn. begun: some have gone already. The
// very first daemon goes alone: it is the one that shows whether it comes back at all. A mon that is in no failure
// domain, on a node without OSDs, goes under a claim of its own; one that goes for good under none, since it has left
// the monmap.
func NextWaiting(in Input, begun bool) Step {
	s := Next(in.waiting(begun))
	if !begun && s.Do == DoReplace && !s.Broken && len(s.OSDs) == 1 {
		s.Why = s.OSDs[0].String() + " goes first, alone, to show whether it comes back"
	}
	if s.Do == DoReplace && s.Domain.IsZero() && IsMon(s.OSDs[0].Name) && !s.OSDs[0].ForGood {
		s.Domain = lease.Mon(strings.TrimPrefix(s.OSDs[0].Name, "mon."))
	}
	return s
}

// WaitingBatches lists all steps that are to be expected if everything goes well, as Batches does.
func WaitingBatches(in Input, begun bool) (steps []Step) {
	left := in.sorted()
	for {
		in.OSDs = left
		s := NextWaiting(in, begun)
		if s.Do == DoNothing {
			return steps
		}
		steps = append(steps, s)
		begun = begun || s.Do == DoReplace
		left = after(s, slices.Clone(left))
	}
}

func (in Input) waiting(begun bool) Input {
	mon := func(o OSD) bool { return IsMon(o.Name) && !in.skips(o) }
	kept := func(o OSD) bool { return !IsMon(o.Name) && o.State == OutOfDate && !o.Unheard }
	if slices.ContainsFunc(in.OSDs, mon) {
		in.OSDs = slices.DeleteFunc(slices.Clone(in.OSDs), kept)
		in.MaxParallel = 1
	}
	if !begun {
		in.MaxParallel = 1
	}
	return in
}
