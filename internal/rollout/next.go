package rollout

import (
	"fmt"
	"slices"

	"github.com/lockkeeper/lockkeeper/internal/brief"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Do is what is to be done next.
type Do string

// What can be done, most urgent first.
const (
	DoCreate  Do = "Create"  // pods are missing: make them, which takes nothing from anybody
	DoReplace Do = "Replace" // a batch
	DoAwait   Do = "Await"   // until these serve nothing else may be touched
	DoNothing Do = "Nothing" // all is as it should be
)

// Step is what to do next.
type Step struct {
	Do   Do    `json:"do"`
	OSDs []OSD `json:"osds,omitempty"`
	// Domain is the failure domain of all of them; zero when they are in none, and nobody can miss them.
	Domain storage.FailureDomain `json:"domain,omitzero"`
	// Broken: they are down anyway.
	Broken bool `json:"broken,omitempty"`
	// Canary: the one that goes first.
	Canary bool `json:"canary,omitempty"`
	// Unheard: nobody hears them, so that the storage is not whole before they have started anew.
	Unheard bool   `json:"unheard,omitempty"`
	Why     string `json:"why"`
}

// atOnce bounds a step, so that it is a small message and soon over, whatever the size of the cluster.
const atOnce = 64

// Next decides what to do next.
func Next(in Input) Step { return in.next(in.sorted()) }

// next decides about OSDs in the order of the rollout.
func (in Input) next(all []OSD) Step {
	if missing := filter(all, func(o OSD) bool { return o.State == Missing }); len(missing) > 0 {
		return Step{Do: DoCreate, OSDs: missing[:min(len(missing), atOnce)], Why: describe(missing) + " without a pod"}
	}
	if broken := filter(all, in.broken); len(broken) > 0 {
		return in.mend(broken)
	}
	if awaited := filter(all, in.awaits); len(awaited) > 0 {
		return Step{
			Do: DoAwait, OSDs: awaited[:min(len(awaited), atOnce)], Domain: in.domain(awaited[0].Domain),
			Why: awaiting(awaited),
		}
	}
	todo := func(o OSD) bool { return o.State == OutOfDate && !in.skips(o) }
	at := slices.IndexFunc(all, todo)
	if at < 0 {
		return Step{Do: DoNothing, Why: "every OSD is as its template says"}
	}
	if unheard := filter(all, func(o OSD) bool { return o.Unheard && todo(o) }); len(unheard) > 0 {
		return in.wake(unheard)
	}
	first := all[at]
	if in.Canary {
		return Step{Do: DoReplace, OSDs: []OSD{first}, Domain: in.domain(first.Domain), Canary: true, Why: first.String() +
			" goes first, alone: it is the canary"}
	}
	batch := in.bound(filter(all[at:], func(o OSD) bool {
		return o.Domain == first.Domain && (o.Key == first.Key || o.Unit != "" && o.Unit == first.Unit) && todo(o)
	}))
	return Step{Do: DoReplace, OSDs: batch, Domain: in.domain(first.Domain), Why: in.why(batch)}
}

// mend replaces what is broken first. Two broken batches are mended one after the other: that of the failure domain in
// which more is broken first. Those whose pods alone fail serve: they come after those that are down, and wait for
// whatever working OSDs wait for.
func (in Input) mend(broken []OSD) Step {
	up := func(o OSD) bool { return o.Up }
	down := slices.DeleteFunc(slices.Clone(broken), up)
	if len(down) > 0 {
		broken = down
	}
	s := Step{Do: DoReplace, OSDs: in.bound(worst(broken)), Broken: len(down) > 0}
	if in.Canary && !s.Broken {
		s.OSDs, s.Canary = s.OSDs[:1], true
	}
	s.Domain = in.domain(s.OSDs[0].Domain)
	s.Why = describe(s.OSDs) + " out of date and not serving: what is broken comes first"
	return s
}

// wake replaces OSDs first that nobody hears, of the failure domain in which there are most of them: no other one opens
// before. They go together, canary or not, since the storage is not whole before all of them have started anew.
func (in Input) wake(unheard []OSD) Step {
	batch := in.bound(worst(unheard))
	return Step{
		Do: DoReplace, OSDs: batch, Domain: in.domain(batch[0].Domain), Canary: in.Canary, Unheard: true,
		Why: describe(batch) + " without a session with any monitor: no other failure domain opens before",
	}
}

func (in Input) why(batch []OSD) string {
	first := batch[0]
	switch {
	case first.Unit == "":
		return first.String() + " is the next one"
	case first.Domain == "" || first.Unit == first.Domain:
		return fmt.Sprintf("all of %s that is out of date", first.Unit)
	default:
		return fmt.Sprintf("all of %s in %s %s that is out of date", first.Unit, in.DomainType, first.Domain)
	}
}

// bound keeps a batch as small as it has to be.
func (in Input) bound(batch []OSD) []OSD {
	most := atOnce
	if in.MaxParallel > 0 {
		most = min(most, in.MaxParallel)
	}
	return batch[:min(len(batch), most)]
}

// worst is all of the failure domain in which most is broken, the first of them by name.
func worst(broken []OSD) []OSD {
	count := map[string]int{}
	best := broken[0].Domain
	for _, o := range broken {
		count[o.Domain]++
	}
	for _, o := range broken { // in order, so that of two that are equal the first stays
		if count[o.Domain] > count[best] {
			best = o.Domain
		}
	}
	return filter(broken, func(o OSD) bool { return o.Domain == best })
}

// Batches lists all steps that are to be expected if everything goes well, for a person to read before it begins.
func Batches(in Input) []Step {
	left := in.sorted()
	var steps []Step
	for {
		s := in.next(left)
		if s.Do == DoNothing {
			return steps
		}
		steps = append(steps, s)
		in.Canary = in.Canary && !s.Canary
		left = after(s, left)
	}
}

// after is what is left when a step has gone well. What is as it should be plays no part in any decision.
func after(s Step, left []OSD) []OSD {
	done := map[string]bool{}
	for _, o := range s.OSDs {
		done[o.Key] = true
	}
	out := left[:0]
	for _, o := range left {
		switch {
		case !done[o.Key]:
		case s.Do == DoAwait && o.State == OutOfDate: // it serves again, as it was; its turn is still to come
			o.Serves, o.Away = true, ""
		default:
			continue
		}
		out = append(out, o)
	}
	return out
}

func filter(osds []OSD, keep func(OSD) bool) []OSD {
	var out []OSD
	for _, o := range osds {
		if keep(o) {
			out = append(out, o)
		}
	}
	return out
}

func awaiting(osds []OSD) string {
	for _, o := range osds {
		if o.Away != "" {
			return fmt.Sprintf("%s does not serve: %s", o, o.Away)
		}
	}
	return describe(osds) + " not known to serve yet"
}

// describe names a few, with their verb.
func describe(osds []OSD) string {
	if len(osds) == 1 {
		return osds[0].String() + " is"
	}
	names := make([]string, len(osds))
	for i, o := range osds {
		names[i] = o.String()
	}
	return brief.List(names, 4) + " are"
}
