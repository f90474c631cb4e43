package monplan

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// This file is about which mons are dead. A mon is, when it was out of quorum for the whole healthTimeout, or when its
// node is deleted, its store was bound to that node, and it is out of quorum as well. A mon in quorum is never dead,
// whatever its node, its labels or its pod look like.

// Timers are since when each mon of the monmap is out of quorum without a break, from what was known before. A mon in
// quorum has no timer. They are written down, so that they survive whoever looks; while nobody knows who lives, they
// stay as they are.
func Timers(before map[string]time.Time, mons []Mon, now time.Time) map[string]time.Time {
	after := map[string]time.Time{}
	for _, m := range mons {
		since, known := before[m.Name]
		switch {
		case m.Alive:
		case known:
			after[m.Name] = since
		default:
			after[m.Name] = now
		}
	}
	return after
}

// dies is when a mon that is out of quorum counts as dead; the zero time for one that is in quorum.
func (s Seen) dies(m Mon) time.Time {
	switch {
	case m.Alive:
		return time.Time{}
	case m.NodeGone && m.Bound:
		return s.Now
	case m.OutSince.IsZero(): // the look that saw it first
		return s.Now.Add(s.Want.HealthTimeout)
	}
	return m.OutSince.Add(s.Want.HealthTimeout)
}

func (s Seen) dead(m Mon) bool { return !m.Alive && !s.dies(m).After(s.Now) }

// theDead are the dead mons, the longest dead first.
func (s Seen) theDead() (dead []Mon) {
	for _, m := range s.Mons {
		if s.dead(m) {
			dead = append(dead, m)
		}
	}
	slices.SortFunc(dead, func(a, b Mon) int {
		return cmp.Or(s.dies(a).Compare(s.dies(b)), compareNames(a.Name, b.Name))
	})
	return dead
}

// out says which mon counts as dead next, and when; "" when all are in quorum.
func (s Seen) out() (why string, until time.Time) {
	for _, m := range s.Mons {
		if dies := s.dies(m); !m.Alive && (until.IsZero() || dies.Before(until)) {
			why, until = fmt.Sprintf("mon.%s is out of quorum", m.Name), dies
		}
	}
	return why, until
}
