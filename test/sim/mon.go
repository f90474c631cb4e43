package sim

import (
	"slices"
	"time"

	policyv1 "k8s.io/api/policy/v1"
)

// quorum is the mons and what they agree on.
type quorum struct {
	mons     []*mon
	election int64
	electing time.Time     // until when nothing that needs a quorum is done
	readable time.Time     // until when what is known is told all the same
	lost     time.Time     // since when there is no quorum, or an election; zero: there is one
	regained time.Time     // when there was one again
	hushed   time.Time     // since when they do not answer, as far as it was noticed
	silence  time.Duration // how long they did not answer before
	friends  []string      // who was in the last quorum
	apart    bool          // the mons cannot reach each other
}

// mon is a monitor, pinned to its node.
type mon struct {
	name, host string
	running    bool
	hung       bool
	in         bool      // the quorum
	stopped    time.Time // when it stopped or hung last
}

func (m *mon) workload() *workload {
	return &workload{kind: "mon", id: m.name, pinned: m.host, replicas: 1}
}

func (w *World) addMon(n *node) *mon {
	m := &mon{name: string(rune('a' + len(w.mons))), host: n.name, running: true}
	w.mons = append(w.mons, m)
	return m
}

func (w *World) monOf(d *workload) *mon {
	return w.mons[slices.IndexFunc(w.mons, func(m *mon) bool { return m.name == d.id })]
}

func (w *World) majority() int { return len(w.mons)/2 + 1 }

// inQuorum counts the mons that are, and serve.
func (w *World) inQuorum() int {
	n := 0
	for _, m := range w.mons {
		if m.in && m.running {
			n++
		}
	}
	return n
}

// quorate tells whether what needs a quorum is answered now.
func (w *World) quorate() bool {
	return w.enoughMons() && (!time.Now().Before(w.electing) || time.Now().Before(w.readable))
}

// commits tells whether the mons can change anything now.
func (w *World) commits() bool { return w.enoughMons() && !time.Now().Before(w.electing) }

func (w *World) enoughMons() bool { return !w.apart && w.inQuorum() >= w.majority() }

// quorumNames is what the mons call the quorum. Until they have elected anew, they name who was in the last one; those
// without a quorum do so for a while.
func (w *World) quorumNames() []string {
	switch {
	case w.commits():
	case !w.quorate() && !w.lost.IsZero() && time.Since(w.lost) > quorumNamed:
		return nil
	default:
		return w.friends
	}
	var out []string
	for _, m := range w.mons {
		if m.in {
			out = append(out, m.name)
		}
	}
	return out
}

// elect makes a quorum of the mons that run, if they are enough. It takes a while; for the first part of it what is
// known is told all the same.
func (w *World) elect(takes, readable time.Duration) {
	if w.quorate() {
		w.friends = w.quorumNames()
	} else {
		w.hush()
		readable = 0 // there is no lease any more
	}
	if w.lost.IsZero() {
		w.lost = time.Now()
	}
	running := 0
	for _, m := range w.mons {
		m.in = m.running && !w.apart
		if m.in {
			running++
		}
	}
	w.election += 2
	w.electing, w.readable = time.Now().Add(takes), time.Now().Add(readable)
	if running < w.majority() {
		w.hush()
		w.tell("ceph: the mons have no quorum")
		w.broadcast()
		return
	}
	w.later(takes, func() {
		if w.commits() && !w.lost.IsZero() {
			w.silence, w.hushed, w.lost, w.regained = w.silentFor(), time.Time{}, time.Time{}, time.Now()
			w.tell("ceph: quorum %v", w.quorumNames())
			w.broadcast()
		}
	})
	w.broadcast()
}

// hush notes that the mons do not answer any more.
func (w *World) hush() {
	if w.hushed.IsZero() {
		w.hushed = time.Now()
		if w.enoughMons() && w.readable.After(w.lost) {
			w.hushed = w.readable // when their lease ended
		}
	}
}

func (w *World) stopMon(m *mon) {
	if !m.running {
		m.hung = false // it does not go on, either
		return
	}
	leads := m.in && !slices.ContainsFunc(w.mons[:slices.Index(w.mons, m)], func(x *mon) bool { return x.in })
	if w.quorate() {
		w.friends = w.quorumNames()
	}
	m.running, m.stopped = false, time.Now()
	if !m.in {
		return
	}
	if leads {
		w.elect(monMissed, leaderLease)
	} else {
		w.elect(monMissed, peonMissed)
	}
}

// hangMon stops a mon in its tracks, or lets it go on.
func (w *World) hangMon(m *mon, on bool) {
	switch {
	case on && m.running:
		w.crashed = time.Now()
		m.hung = true
		w.stopMon(m)
	case !on && m.hung:
		m.hung = false
		w.startMon(m)
	}
}

func (w *World) startMon(m *mon) {
	if m.running {
		return
	}
	m.running, m.hung = true, false
	w.later(monJoins, func() {
		if m.running && !m.in {
			w.elect(election, 0)
		}
	})
}

// LoseQuorum stops the monitors from agreeing, or lets them.
func (w *World) LoseQuorum(lose bool) {
	w.happens(func() {
		if w.apart == lose {
			return
		}
		w.tell("the monitors %s", map[bool]string{true: "cannot reach each other", false: "reach each other again"}[lose])
		if w.quorate() {
			w.friends = w.quorumNames()
		}
		w.apart = lose
		w.elect(election, 0)
	})
}

// judgeLettingGo: nobody lets a mon go while another one is dead without which it is needed for a majority, though the
// mons still call that one alive (I5). A commit tells. No budget holds a pod that is on its way out.
func (w *World) judgeLettingGo(had, b *policyv1.PodDisruptionBudget) {
	var before []string
	if had != nil {
		before = opened(had)
	}
	for _, m := range w.mons {
		p := w.podOf(w.workload("mon", m.name))
		if !m.in || !m.running || p == nil || !p.runs || !slices.Contains(opened(b), m.name) ||
			slices.Contains(before, m.name) {
			continue
		}
		for _, dead := range w.mons {
			since := time.Since(dead.stopped)
			if !dead.running && since > w.opts.Reaction && slices.Contains(w.quorumNames(), dead.name) &&
				w.inQuorum() == w.majority() {
				w.violate("I5: mon.%s is let go while mon.%s has been dead for %s", m.name, dead.name, since)
			}
		}
	}
}
