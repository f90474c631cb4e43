package longhorn

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// This file is bad luck: machines without power, damaged replicas and instance managers that crash.

// LoseNode takes the power of a machine away.
func (w *World) LoseNode(name string) {
	w.happens(func() {
		n := w.nodes[name]
		if n == nil || w.machines[name].lost {
			return
		}
		w.tell("%s has no power", name)
		w.machines[name].lost = true
		w.readies(n, false)
	})
}

func (w *World) readies(n *corev1.Node, is bool) {
	status := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionUnknown}[is]
	n.Status.Conditions[0].Status = status
	w.wroteNode(n)
	m := w.managers[managerName(n.Name)]
	if !is && m != nil && m.fell.IsZero() && w.wentAt(n.Name).IsZero() {
		m.fell = time.Now()
	}
	for _, key := range sorted(w.pods) {
		if p := w.pods[key]; p.Spec.NodeName == n.Name && !is && podReady(p) {
			w.setReady(p, false)
		}
	}
}

// returnNode gives a machine its power back, and registers its node if somebody has deleted it.
func (w *World) returnNode(name string) {
	m := w.machines[name]
	if m == nil || m.removed {
		return
	}
	n := w.nodes[name]
	if n == nil {
		w.tell("%s registers again", name)
		n = w.addNode(name)
	} else if !m.lost {
		return
	}
	w.tell("%s is back", name)
	m.lost = false
	m.boot++
	n.Status.NodeInfo.BootID = fmt.Sprint("boot-", m.boot)
	w.readies(n, true)
	for _, key := range sorted(w.pods) {
		p := w.pods[key]
		if p.Spec.NodeName == name && p.Namespace == Key.Namespace && p.DeletionTimestamp == nil && !isHelper(p) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: w.restarts(p) + 1}}
			w.wrotePod(p)
			w.startPod(p)
		}
	}
}

func (w *World) restarts(p *corev1.Pod) int32 {
	if len(p.Status.ContainerStatuses) == 0 {
		return 0
	}
	return p.Status.ContainerStatuses[0].RestartCount
}

// ReturnNodes gives all machines their power back, also those of nodes that a person has deleted.
func (w *World) ReturnNodes() {
	w.happens(func() {
		for _, name := range sorted(w.machines) {
			w.returnNode(name)
		}
	})
}

func (w *World) dropNode(name string) {
	w.gone[name] = time.Now()
	delete(w.nodes, name)
	w.stir("Node")
	for _, key := range sorted(w.pods) {
		if p := w.pods[key]; p.Spec.NodeName == name {
			w.dropPod(p)
		}
	}
}

// FailReplica has a copy be damaged.
func (w *World) FailReplica(which int) {
	w.happens(func() {
		r := w.replicas[pick(sorted(w.replicas), which)]
		if r == nil || !r.whole() {
			return
		}
		w.tell("%s on %s fails", r.name, r.node)
		r.failed, r.process, r.fell = true, stopped, time.Now()
		w.stir("Replica")
	})
}

// KillManager has the instance manager of a node crash, or has Longhorn replace its pod.
func (w *World) KillManager(name string, replace bool) {
	w.happens(func() {
		m := w.managers[managerName(name)]
		if m == nil || !w.serves(name) {
			return
		}
		p := w.managerPod(m)
		w.tell("the instance manager of %s %s", name, map[bool]string{true: "is replaced", false: "crashes"}[replace])
		m.fell = time.Now()
		if replace {
			w.remove(p)
			return
		}
		p.Status.ContainerStatuses[0].RestartCount++
		w.setReady(p, false)
		w.startPod(p)
	})
}
