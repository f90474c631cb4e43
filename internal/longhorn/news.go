package longhorn

import "slices"

// Waits tells whether nobody loses anything if whoever acts by one decision hears of the next one a while later. That
// is so as long as nobody is let go who would have to stay, no node that is leaving has another answer, and nothing has
// failed or was repaired: volumes are attached and detached all the time, and most of it only changes why a node stays.
func (d Decision) Waits(next Decision) bool {
	return (next.OneMore || !d.OneMore) && slices.Equal(d.Faults, next.Faults) &&
		slices.EqualFunc(d.Nodes, next.Nodes, NodeVerdict.waits) && slices.EqualFunc(d.Managers, next.Managers, Verdict.waits)
}

func (n NodeVerdict) waits(next NodeVerdict) bool {
	return n.Node == next.Node && n.Leaving == next.Leaving && n.Evict == next.Evict &&
		slices.Equal(n.Conflicts, next.Conflicts) && slices.Equal(n.Alone, next.Alone) &&
		(n.Stay || !next.Stay) &&
		(n.says() == next.says() || n.Leaving == NotLeaving && loosens(n.says(), next.says()))
}

func (v Verdict) waits(next Verdict) bool {
	return v.Manager == next.Manager && v.Node == next.Node &&
		(v.says() == next.says() || loosens(v.says(), next.says()))
}

// said is an answer.
type said struct {
	state   State
	reason  Reason
	subject string
}

func (n NodeVerdict) says() said { return said{n.State, n.Reason, n.Subject} }

func (v Verdict) says() said { return said{v.State, v.Reason, v.Subject} }

// loosens tells whether an answer lets go at most where the next one does, and the two differ by who uses which volume.
func loosens(from, to said) bool {
	ofUse := func(r Reason) bool { // an instance manager that is spare has no reason
		return r == "" || slices.Contains([]Reason{EngineRunning, ReplicaInUse, Cover, NothingToLose}, r)
	}
	return ofUse(from.reason) && ofUse(to.reason) && (from.state == to.state || from.state == Kept && to.state == Spare)
}
