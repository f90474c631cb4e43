package sim

import (
	"slices"
	"time"
)

// This file is what becomes of Machines: nodes lose their power, people delete Machines, and a remediator fences what
// nobody holds.

// LosePower ends everything on a node, and nothing but the remediator starts it again.
func (m *Machines) LosePower(name string) {
	m.w.happens(func() {
		n := m.w.nodes[name]
		if n == nil || n.gone || n.rebooting || !m.lostAt[name].IsZero() {
			return
		}
		m.w.tell("%s loses its power", name)
		n.ready, n.rebooting = false, true
		m.lostAt[name] = time.Now()
		m.w.leaveSessions(name)
		for _, p := range m.w.pods {
			if p.node == name {
				m.w.crashOn(p)
			}
		}
		m.w.kubeChanged()
	})
}

// PowerReturns gives a node its power back, unless somebody starts it by now.
func (m *Machines) PowerReturns(name string) {
	m.w.happens(func() {
		if !m.lostAt[name].IsZero() && !m.w.nodes[name].cut {
			m.w.tell("%s has its power again", name)
			delete(m.lostAt, name)
			m.back(name)
		}
	})
}

// Delete is a person, a rollout or an autoscaler who wants a Machine gone. It goes when nobody holds it, its node with
// it, and another one takes its place, with the disks.
func (m *Machines) Delete(name string) {
	m.w.happens(func() {
		if m.away[name] || !m.deleting[name].IsZero() {
			return
		}
		m.w.tell("a person deletes the Machine of %s", name)
		m.deleting[name] = time.Now()
	})
}

// Vanish takes a Machine from the API, by force, and leaves its node.
func (m *Machines) Vanish(name string) {
	m.w.happens(func() {
		m.w.tell("the Machine of %s is gone from the API alone", name)
		m.away[name] = true
		delete(m.held, name)
		delete(m.deleting, name)
	})
}

// remediate starts a node again that nobody holds, and takes the Machines away that are being deleted.
func (m *Machines) remediate() {
	for _, name := range m.w.names {
		lost := m.lostAt[name]
		switch {
		case m.away[name] || m.idle:
		case !m.deleting[name].IsZero():
			if !m.held[name] || m.budget != nil { // a label holds nobody back who deletes a Machine
				m.take(name)
			}
		case lost.IsZero() || time.Since(lost) < m.waits.Unready:
		case !m.held[name]:
			m.startAgain(name)
		case m.budget.lets(m):
			m.judgeNumber(name)
			m.startAgain(name)
		}
	}
	m.judgeWaits()
}

// startAgain ends what may still run on a node, and starts it.
func (m *Machines) startAgain(name string) {
	m.w.tell("the remediator starts %s again", name)
	m.fences[name]++
	delete(m.lostAt, name)
	m.starting[name] = true
	if n := m.w.nodes[name]; n.cut {
		n.rebooting = true
		m.w.powerOff(name)
		m.w.kubeChanged()
	}
	m.w.later(m.waits.Starts, func() { m.back(name) })
}

// take takes a Machine away, and its node.
func (m *Machines) take(name string) {
	w, n := m.w, m.w.nodes[name]
	w.tell("the Machine of %s is gone, and the node with it", name)
	m.away[name] = true
	m.fences[name]++
	delete(m.deleting, name)
	delete(m.lostAt, name)
	delete(m.released, name)
	delete(m.byHand, name)
	delete(m.held, name) // the next one's labels are its own
	n.gone, n.rebooting = true, false
	w.crashed = time.Now()
	w.leaveSessions(name)
	for _, p := range slices.Clone(w.pods) {
		switch {
		case p.node != name || !p.bound:
		case p.unheard:
			w.endPod(p)
		default:
			w.crashOn(p)
			w.remove(p)
		}
	}
	w.kubeChanged()
	w.later(m.waits.Starts, func() { m.replaced(name) })
}

// replaced is another Machine, which takes the place of one that is gone.
func (m *Machines) replaced(name string) {
	n := m.w.nodes[name]
	m.w.tell("another Machine takes the place of that of %s", name)
	delete(m.away, name)
	m.made[name]++
	if n.gone {
		*n = node{name: n.name, zone: n.zone, uid: n.uid + "+", boot: n.boot + 1, ready: true}
	}
	m.w.kubeChanged()
	m.w.schedule()
}

func (m *Machines) back(name string) {
	n := m.w.nodes[name]
	delete(m.starting, name)
	if !m.lostAt[name].IsZero() || m.away[name] { // once more, or for good
		return
	}
	n.rebooting, n.ready, n.cut = false, true, false
	n.boot++
	m.w.tell("%s is back", name)
	for _, p := range slices.Clone(m.w.pods) {
		if p.node == name && p.bound {
			m.w.later(podStarts, func() { m.w.run(p) })
		}
	}
	m.w.hear(name)
	m.w.kubeChanged()
	m.w.schedule()
}

// Idle has the remediator do nothing, or act again.
func (m *Machines) Idle(on bool) { m.w.happens(func() { m.idle = on }) }

// Without are the nodes that have no power, or are cut off.
func (m *Machines) Without() (nodes []string) {
	m.w.happens(func() {
		for _, name := range m.w.names {
			if !m.lostAt[name].IsZero() {
				nodes = append(nodes, name)
			}
		}
	})
	return nodes
}

// Fences is how often a node was fenced.
func (m *Machines) Fences(name string) (n int) {
	m.w.happens(func() { n = m.fences[name] })
	return n
}

// AllFences is how often any node was fenced.
func (m *Machines) AllFences() (n int) {
	m.w.happens(func() {
		for _, fences := range m.fences {
			n += fences
		}
	})
	return n
}
