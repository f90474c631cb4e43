package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is nodes that are cut off from the control plane. Kubernetes calls them dead, and everything on them goes
// on: their OSDs serve, and nobody can end their pods.

// CutOff takes the control plane from a node, and nothing else.
func (m *Machines) CutOff(name string) {
	m.w.happens(func() {
		n := m.w.nodes[name]
		if n == nil || n.gone || n.rebooting || !m.lostAt[name].IsZero() {
			return
		}
		m.w.tell("%s is cut off from the control plane, and its daemons go on", name)
		n.ready, n.cut = false, true
		m.lostAt[name] = time.Now()
		for _, p := range m.w.pods {
			if p.node == name && p.bound && p.state == storage.PodReady { // the node's controller says so of all of them
				p.state, p.failing = storage.PodNotReady, time.Now()
			}
		}
		m.w.kubeChanged()
		m.w.later(givesUpNode, func() { m.w.deletePodsOf(n) })
	})
}

// givesUpNode is after how long Kubernetes deletes the pods of a node that it does not hear of.
const givesUpNode = 5 * time.Minute

// deletePodsOf deletes the pods of managers on a node that is still cut off, so that others start elsewhere. Those of
// OSDs and mons belong to their node, and tolerate that.
func (w *World) deletePodsOf(n *node) {
	if !n.cut || n.gone {
		return
	}
	for _, p := range slices.Clone(w.pods) {
		if p.node == n.name && p.bound && p.of.kind == "mgr" {
			w.remove(p)
		}
	}
}

// NetworkReturns ends that, unless somebody starts the node by now.
func (m *Machines) NetworkReturns(name string) {
	m.w.happens(func() {
		n := m.w.nodes[name]
		if n == nil || n.gone || n.rebooting || !n.cut {
			return
		}
		m.w.tell("%s is not cut off any more", name)
		n.ready, n.cut = true, false
		delete(m.lostAt, name)
		for _, p := range slices.Clone(m.w.pods) {
			switch {
			case p.node != name || !p.bound || p.leaving():
			case !p.runs:
				m.w.later(podStarts, func() { m.w.run(p) })
			case p.state == storage.PodNotReady:
				p.state, p.failing = storage.PodReady, time.Time{}
			}
		}
		m.w.hear(name)
		m.w.kubeChanged()
		m.w.schedule()
	})
}

// hear has a kubelet hear which pods were to end while it reached nobody.
func (w *World) hear(node string) {
	for _, p := range w.pods {
		if p.node != node || !p.unheard {
			continue
		}
		grace := podGrace
		if p.of.kind == "osd" {
			grace = cmp.Or(w.opts.Grace, grace)
		}
		w.later(grace, func() { w.endPod(p) })
	}
}

// runUnseen starts a container again whose kubelet reaches nobody, and needs nobody for that.
func (w *World) runUnseen(p *pod) {
	if w.crashes[p.image()] || w.locked(p) {
		w.later(backOff, func() { w.run(p) })
		return
	}
	p.restarts++
	p.started, p.failing = time.Now(), time.Now()
	if p.runs = w.startDaemon(p.of); p.runs && p.of.kind == "osd" {
		o := w.osdOf(p.of)
		o.pod, o.starting = p.name, VersionOf(p.image())
		w.ran(p)
	}
}

// CutOffs are the nodes that are cut off.
func (m *Machines) CutOffs() (nodes []string) {
	m.w.happens(func() {
		for _, name := range m.w.names {
			if n := m.w.nodes[name]; n.cut && !n.gone && !n.rebooting {
				nodes = append(nodes, name)
			}
		}
	})
	return nodes
}

// powerOff ends everything that runs on a node.
func (w *World) powerOff(node string) {
	w.leaveSessions(node)
	for _, p := range w.pods {
		switch {
		case p.node != node:
		case p.unheard && p.runs:
			p.runs, w.crashed = false, time.Now()
			w.stopDaemon(p.of)
		default:
			w.crashOn(p)
		}
	}
}

// servesUnheard tells whether an OSD serves in a pod that is to end, and whose kubelet has not heard of that.
func (w *World) servesUnheard(o *osd) bool {
	return slices.ContainsFunc(w.pods, func(p *pod) bool { return p.of == o.workload() && p.unheard && p.runs })
}
