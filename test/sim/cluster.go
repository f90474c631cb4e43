package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what Kubernetes does: the controller of Deployments, the scheduler and the kubelets.

// podOf is the pod of a daemon that is not on its way out; of several, that in which it runs.
func (w *World) podOf(d *workload) (first *pod) {
	for _, p := range w.pods {
		switch {
		case p.of != d || p.leaving():
		case p.runs:
			return p
		case first == nil:
			first = p
		}
	}
	return first
}

func (w *World) workload(kind, id string) *workload {
	for _, d := range w.workloads {
		if d.kind == kind && d.id == id {
			return d
		}
	}
	return nil
}

// remove ends a pod, gracefully, and has its Deployment make another one.
func (w *World) remove(p *pod) {
	if p.leaving() {
		return
	}
	p.state, p.ready = storage.PodTerminating, p.state == storage.PodReady
	w.disturbed(p)
	w.later(podReplaced, func() { w.replace(p.of) })
	grace := podGrace
	if p.made != nil {
		grace = bareGrace
	}
	if p.of.kind == "osd" {
		grace = cmp.Or(w.opts.Grace, grace)
	}
	if !p.bound {
		grace = 0
	}
	w.later(grace, func() {
		if n := w.nodes[p.node]; p.bound && n != nil && n.cut && !n.gone {
			p.unheard = true
			w.schedule()
			return
		}
		w.endPod(p)
	})
	w.kubeChanged()
}

// endPod is the end of a pod that is leaving.
func (w *World) endPod(p *pod) {
	ran := p.runs
	p.runs, p.unheard = false, false
	w.pods = slices.DeleteFunc(w.pods, func(x *pod) bool { return x == p })
	if ran {
		w.stopDaemon(p.of)
	}
	w.kubeChanged()
	w.schedule()
}

// replace makes a pod for a workload that should have one and has none.
func (w *World) replace(d *workload) {
	if d.replicas == 0 || w.podOf(d) != nil {
		return
	}
	p := &pod{
		name: fmt.Sprintf("%s-%d", d.name(), time.Since(w.started).Milliseconds()), of: d, node: d.pinned,
		state: storage.PodPending, revision: d.generation, has: d.image,
	}
	w.pods = append(w.pods, p)
	w.kubeChanged()
	w.schedule()
}

// schedule binds the pods that wait and can.
func (w *World) schedule() {
	for _, p := range w.pods {
		if p.bound || p.state != storage.PodPending {
			continue
		}
		if p.made != nil { // it tolerates every taint, as an OSD's should, and nobody looks who else has its device
			if n := w.nodes[p.node]; n != nil && !n.gone {
				p.bound = true
				w.later(podStarts, func() { w.run(p) })
			}
			continue
		}
		if slices.ContainsFunc(w.pods, func(x *pod) bool { return x.of == p.of && x.leaving() && !w.leftBehind(x) }) {
			continue
		}
		node := p.of.pinned
		if node == "" {
			for _, name := range w.names {
				if w.nodes[name].schedulable() {
					node = name
				}
			}
		}
		if !w.nodes[node].schedulable() {
			continue
		}
		p.node, p.bound = node, true
		w.later(podStarts, func() { w.run(p) })
	}
}

// leftBehind tells whether nobody waits for the end of a pod, since it has no volume: that of a manager that has died
// on a node that is cut off.
func (w *World) leftBehind(p *pod) bool {
	if p.of.kind != "mgr" || !p.unheard || w.manager.alive {
		return false
	}
	p.runs = false
	return true
}

// run starts a pod's process. It is ready before its daemon serves, as without a readiness probe.
func (w *World) run(p *pod) {
	if p.leaving() || !p.bound || !slices.Contains(w.pods, p) {
		return
	}
	n := w.nodes[p.node]
	if n != nil && n.cut && !n.gone && !n.rebooting && p.began && !p.runs {
		w.runUnseen(p)
		return
	}
	if n == nil || n.gone || !n.ready {
		return
	}
	if p.began && !p.runs {
		p.restarts++
	}
	p.began, p.started = true, time.Now()
	w.judgeStart(p)
	if w.crashes[p.image()] || w.locked(p) {
		p.state = storage.PodNotReady
		w.later(backOff, func() { w.run(p) })
		w.kubeChanged()
		return
	}
	p.state = storage.PodReady
	if p.runs = w.startDaemon(p.of); !p.runs {
		p.state = storage.PodNotReady
	} else if p.of.kind == "osd" {
		o := w.osdOf(p.of)
		o.pod, o.starting = p.name, VersionOf(p.image())
		w.ran(p)
	}
	w.kubeChanged()
}

// Unready has the readiness probe of a daemon's pod fail for a while. The daemon serves all the same.
func (w *World) Unready(daemon string, lasting time.Duration) {
	w.happens(func() {
		p := w.podOf(w.find(daemon))
		if p == nil || !p.runs || p.state != storage.PodReady {
			return
		}
		w.tell("the pod of %s is not ready, and serves", daemon)
		p.state, p.failing = storage.PodNotReady, time.Now()
		w.later(lasting, func() {
			if n := w.nodes[p.node]; n != nil && n.cut {
				return
			}
			if p.failing = (time.Time{}); p.runs && p.state == storage.PodNotReady {
				p.state = storage.PodReady
				w.kubeChanged()
			}
		})
		w.kubeChanged()
	})
}

// crashOn stops what runs in a pod, without anybody having asked.
func (w *World) crashOn(p *pod) {
	if p.leaving() || !p.bound || p.state == storage.PodPending {
		return
	}
	ran := p.runs
	p.state, p.runs = storage.PodNotReady, false
	w.crashed = time.Now()
	if ran {
		w.stopDaemon(p.of)
	}
}

func (w *World) stopDaemon(d *workload) {
	switch d.kind {
	case "osd":
		w.stopOSD(w.osdOf(d))
	case "mon":
		w.stopMon(w.monOf(d))
	case "mgr":
		w.stopManager()
	}
}

// startDaemon starts what runs in a pod, and tells whether it runs.
func (w *World) startDaemon(d *workload) bool {
	switch d.kind {
	case "osd":
		return w.startOSD(w.osdOf(d))
	case "mon":
		w.startMon(w.monOf(d))
	case "mgr":
		w.startManager()
	}
	return true
}

func (w *World) osdOf(d *workload) *osd {
	id, _ := strconv.Atoi(d.id)
	return w.osds[id]
}

func (w *World) cordon(name string, on bool, who owner) {
	n := w.nodes[name]
	if n == nil || n.gone {
		return
	}
	if n.cordoned == on {
		return
	}
	w.tell("%s %s %s", who, map[bool]string{true: "cordons", false: "uncordons"}[on], name)
	if who == byUs && !on && n.cordonedBy != byUs && !n.atOnce {
		w.violate("I9: lockkeeper uncordons %s, which %s had cordoned", name, n.cordonedBy)
	}
	n.cordonedAt = time.Now()
	n.cordoned, n.cordonedBy, n.atOnce = on, who, time.Since(n.lookedAt) < w.opts.Reaction
	w.kubeChanged()
	w.schedule()
}
