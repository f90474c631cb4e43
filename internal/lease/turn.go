package lease

import (
	"slices"
	"time"
)

// This file is about jobs that hold the lease for a disruption which somebody else is to begin, and who may never do.

// SpentTurns lists the holders that give their turn to others now: each is as old as its job allows, nothing of what it
// was granted for has begun, and somebody waits who may not hold the lease beside it.
func (s State) SpentTurns(now time.Time, together func(a, b Claim) bool, idle func(Claim) bool) (out []Claim) {
	for _, c := range s.Holders {
		if s.givesWay(c, together) && idle(c) && !now.Before(c.Granted.Add(c.Turn)) {
			out = append(out, c)
		}
	}
	return out
}

// NextSpentTurn is when the next holder would give its turn to others if nothing else happens; zero for none.
func (s State) NextSpentTurn(together func(a, b Claim) bool, idle func(Claim) bool) (next time.Time) {
	for _, c := range s.Holders {
		if at := c.Granted.Add(c.Turn); s.givesWay(c, together) && idle(c) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// givesWay tells whether a holder has a turn that ends, and others to give it to.
func (s State) givesWay(c Claim, together func(a, b Claim) bool) bool {
	return c.Turn > 0 && !c.Finishing && !c.Reserved() &&
		slices.ContainsFunc(s.Queue, func(w Claim) bool { return !together(c, w) })
}

// doublings is how often a turn doubles at most.
const doublings = 4

// TurnOf is how long the next turn of a job may be, given the first one and how many have ended because others waited.
// It doubles up to sixteen times the first one: where those who wait could not go anyway, nobody gains by changing
// places every minute.
func TurnOf(first time.Duration, ended int) time.Duration {
	return first << min(max(ended, 0), doublings)
}
