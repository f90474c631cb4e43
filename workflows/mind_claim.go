package workflows

import (
	"time"

	"github.com/lockkeeper/lockkeeper/internal/precedence"
)

// This file is the keeper's claim to its storage cluster, by which policies of different namespaces that mean the same
// one are told apart. The order of the steps is in package precedence. Observations of older workers say nothing of
// claims: then nothing is claimed.

// contestedEvery is how soon a keeper looks again that another policy stands in the way of. The watcher tells sooner;
// but one that is restricted to a namespace sees no policy of another.
const contestedEvery = time.Minute

// claim makes this policy's claim that of the storage cluster that was seen. apply writes it down before it does
// anything else, and nothing opens before a look has found it there. written tells that this look must follow at once.
func (m *mind) claim() (written bool) {
	o := &m.observed
	if o.Claim == nil || o.Seen.ID == "" {
		return false
	}
	want := precedence.Claim{ID: o.Seen.ID, Held: true}
	// so that one that somebody took away is written again
	m.state.Memory.Claim, m.state.Reported.Memory.Claim = want, *o.Claim
	if *o.Claim == want {
		m.unclaimed = 0
		return false
	}
	if m.unclaimed++; m.unclaimed > 1 {
		o.Seen.View.NotInCharge += ", although it was written. Is the CustomResourceDefinition of this version installed " +
			"(deploy/crds)?"
		return false
	}
	return true
}

// movedOn tells whether the policy means another storage cluster than the one that this keeper looks after.
func (m *mind) movedOn() bool {
	c := m.state.Memory.Claim
	return m.observed.Claim != nil && c.Held && m.observed.Seen.ID != "" && m.observed.Seen.ID != c.ID
}

// lookAgain sets the timer of a keeper that another policy stands in the way of.
func (m *mind) lookAgain(now time.Time) {
	if !m.observed.SecondElsewhere && m.observed.Seen.View.NotInCharge == "" {
		return
	}
	if at := now.Add(contestedEvery); m.next.IsZero() || at.Before(m.next) {
		m.next = at
	}
}
