package fencing

import (
	"cmp"
	"slices"
)

// Choose judges all targets and releases one of them at most: of those that may be released, one that failed before one
// that is removed on purpose, and the one that waits longest first, so that each has its turn. node is "" when none is
// released anew. A target that is among f.Released already gets the verdict Release, or Wait when that has changed.
func Choose(f Facts, targets []Target) (node string, verdicts map[string]Verdict) {
	verdicts = map[string]Verdict{}
	order := slices.Clone(targets)
	slices.SortStableFunc(order, func(a, b Target) int {
		return cmp.Or(urgency(a)-urgency(b), a.Since.Compare(b.Since), cmp.Compare(a.Node, b.Node))
	})
	for _, t := range order {
		v := Judge(f, t)
		if v.Action == Release && !v.Free && !slices.Contains(f.Released, t.Node) {
			node = t.Node
			f.Released = append(slices.Clip(f.Released), t.Node)
		}
		verdicts[t.Node] = v
	}
	return node, verdicts
}

func urgency(t Target) int {
	switch {
	case t.Override != nil:
		return 0
	case t.Why == WhyUnhealthy:
		return 1
	default:
		return 2
	}
}

// InReserve tells whether the i-th of the storage clusters on a node has to keep its hold until another one has let go:
// they release in the order of their keys, as leases are granted. Each releases one Machine at a time, so two of them
// that began with two nodes would wait for each other. stages are those of the node's cases, in that order.
func InReserve(stages []Stage, i int) bool {
	return slices.ContainsFunc(stages[:i], func(s Stage) bool { return s == StageHeld || s == "" })
}

// All joins the verdicts of several storage clusters that have daemons on one node: each of them has to let it go.
func All(verdicts ...Verdict) Verdict {
	joined := Verdict{Action: Release, Reason: ReasonHostsNothing, Message: "no storage cluster has anything on it"}
	for i, v := range verdicts {
		if v.Action != Release {
			return v
		}
		if i == 0 || v.Takes.Hosts > joined.Takes.Hosts {
			joined = v
		}
	}
	return joined
}
