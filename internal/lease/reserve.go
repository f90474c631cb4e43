package lease

import (
	"slices"
	"time"
)

// This file is about jobs that need the leases of several storage clusters. Each keeper knows of its own lease alone.
// All jobs ask in the same order, and hold in reserve what they are granted until they have all, so that no two of them
// wait for each other, and nothing is open meanwhile.

// InEffect is the state as it counts for what may open: a claim in reserve is one that waits, ahead of all others.
func (s State) InEffect() State {
	var holders, reserved []Claim
	for _, c := range s.Holders {
		if c.Reserved() {
			reserved = append(reserved, c)
		} else {
			holders = append(holders, c)
		}
	}
	if len(reserved) > 0 {
		s.Holders, s.Queue = holders, slices.Concat(reserved, s.Queue)
	}
	return s
}

// Overdue lists the claims in reserve that go back now: each is as old as its job allows, its job is not ready, and
// somebody waits who may not hold the lease beside them. As long as somebody else is at work under the lease, nobody
// would gain anything.
func (s State) Overdue(now time.Time, together func(a, b Claim) bool) (out []Claim) {
	if !s.onlyReserved() || !s.othersWait(together) {
		return nil
	}
	for _, c := range s.Holders {
		if !c.Ready && !now.Before(c.Granted.Add(c.Reserve)) {
			out = append(out, c)
		}
	}
	return out
}

// NextOverdue is when the next claim in reserve would go back if nothing else happens; zero for none.
func (s State) NextOverdue(together func(a, b Claim) bool) (next time.Time) {
	if !s.onlyReserved() || !s.othersWait(together) {
		return time.Time{}
	}
	for _, c := range s.Holders {
		if at := c.Granted.Add(c.Reserve); !c.Ready && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

func (s State) onlyReserved() bool {
	return !slices.ContainsFunc(s.Holders, func(c Claim) bool { return !c.Reserved() })
}

func (s State) othersWait(together func(a, b Claim) bool) bool {
	return slices.ContainsFunc(s.Queue, func(c Claim) bool { _, waits := s.inTheWay(c, together); return waits })
}

const (
	// FirstReserve is for how long a job holds the first of several leases in reserve while others wait for it.
	FirstReserve = time.Minute
	mostReserve  = 24 * time.Hour
)

// NextReserve is for how long a job may hold its next claim in reserve, given for how long it held the one before that
// was taken back because others waited; 0: none was. The time doubles, so that a job that always comes to where others
// are before it has its turn in the end, too: then it holds on for as long as the other queue is long.
func NextReserve(before time.Duration) time.Duration {
	return min(max(2*before, FirstReserve), mostReserve)
}

// heldBy is what people read of who holds the lease.
func heldBy(h Claim) string {
	if h.Reserved() {
		return "the lease: " + h.WorkflowID + " holds " + h.Domain.String() + " in reserve, until it has that of another " +
			"storage cluster (" + h.Reason + ")"
	}
	return "the lease: " + h.WorkflowID + " holds " + h.Domain.String() + " (" + h.Reason + ")"
}
