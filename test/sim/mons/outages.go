package mons

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// This file is outages: nodes that Kubernetes does not hear of, with and without what runs there, and a leader of the
// mons that dies at a given moment.

const (
	// unheardAfter is how long Kubernetes waits for a kubelet until it says that the node is not ready.
	unheardAfter = 40 * time.Second
	// tolerated is how long pods stay on a node that is not ready, until they are deleted and made anew.
	tolerated = 5 * time.Minute
	// returnsAgain is how soon a node tries again to come back whose pods end then, if the quorum could not bear it.
	returnsAgain = 10 * time.Second
)

// KubeletDies has the kubelet of a node stop, of a mon's or of any. What runs there goes on.
func (w *World) KubeletDies(which int) {
	name := w.busyNode(which)
	if which%3 == 0 {
		name = w.nodeAt(which)
	}
	w.SilenceNode(name, false)
}

// SilenceNode has a node lose its kubelet, or its power, if the quorum survives it.
func (w *World) SilenceNode(name string, power bool) (done bool) {
	what, on := name+" loses its kubelet", w.on(name)
	lost := func(mon string) bool { return on(mon) && !w.alive(mon) } // it does not come any more
	if power {
		what, lost = name+" loses its power", on
	}
	if w.Node(name) == nil {
		return false
	}
	return w.luck(what, lost, func() {
		w.silence(name)
		if power {
			w.deadNodes[name] = true
		}
	})
}

// Node is a node as Kubernetes has it; nil: it has none of that name.
func (w *World) Node(name string) *corev1.Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[name].DeepCopy()
}

// silence has nobody hear of a node any more.
func (w *World) silence(name string) {
	if _, silent := w.unheard[name]; silent {
		return
	}
	w.unheard[name], w.upset = time.Now(), time.Now()
	w.wake(unheardAfter)
	w.wake(unheardAfter + tolerated)
}

func (w *World) silent(node string) bool {
	_, is := w.unheard[node]
	return is
}

// observeNodes says of the nodes of which nobody hears that they are not ready.
func (w *World) observeNodes() {
	for _, name := range sorted(w.unheard) {
		n := w.nodes[name]
		if n == nil || !ready(n) || time.Since(w.unheard[name]) < unheardAfter {
			continue
		}
		n.Status.Conditions[0].Status = corev1.ConditionUnknown
		w.tell("%s is not ready", name)
		if w.opts.News != nil {
			go w.opts.News(name + " is not ready")
		}
	}
}

// unready tells for how long Kubernetes has said that a node is not ready.
func (w *World) unready(node string) time.Duration {
	if since, silent := w.unheard[node]; silent {
		return time.Since(since) - unheardAfter
	}
	return 0
}

// passUnheard brings a pod to where it is on a node without a kubelet: what is wanted of it is written down, and nobody
// does it. What runs in it goes on.
func (w *World) passUnheard(p *pod, goes bool) {
	node := p.Spec.NodeName
	if p.DeletionTimestamp == nil && (goes || w.unready(node) >= tolerated) {
		now := time.Now()
		p.DeletionTimestamp, p.due = &metav1.Time{Time: now}, now
	}
	if p.Status.Phase == corev1.PodRunning && p.mon() != "" && !w.deadNodes[node] {
		w.process(p)
	}
}

// heldElsewhere: another pod has the claim of a pod, on another node. A volume is of one node at a time.
func (w *World) heldElsewhere(p *pod) bool {
	claim := claimOf(&p.Spec)
	for _, other := range w.pods {
		if claim != "" && claimOf(&other.Spec) == claim && other.Spec.NodeName != "" &&
			other.Spec.NodeName != p.Spec.NodeName {
			return true
		}
	}
	return false
}

// ForgetNode deletes the Node of a mon that lives, and its machine runs on, with the mon. No kubelet makes a Node again
// until the machine is restarted.
func (w *World) ForgetNode(which int) {
	name := w.busyNode(which)
	if name == "" || w.Node(name) == nil {
		return
	}
	all := func() bool {
		for _, p := range w.pods {
			if p.Spec.NodeName == name && p.mon() != "" &&
				(!w.alive(p.mon()) || claimOf(&p.Spec) != "" || p.DeletionTimestamp != nil) {
				return false
			}
		}
		return true
	}
	w.mu.Lock()
	lives := all()
	w.mu.Unlock()
	if !lives {
		return
	}
	w.luck(name+" is deleted from Kubernetes, and runs on", nil, func() {
		if !all() {
			return
		}
		for _, p := range w.pods {
			p.ghost = p.ghost || p.Spec.NodeName == name && p.mon() != ""
		}
		delete(w.nodes, name)
		w.silence(name)
	})
}

// nodeReturns has a node work again, and its kubelet end what has to end. If the quorum cannot bear that now, it is
// later: no order of acts of anybody's could be safe from it.
func (w *World) nodeReturns(name string) {
	w.mu.Lock()
	ends := map[string]bool{}
	for _, p := range w.pods {
		if p.Spec.NodeName == name && (p.ghost || p.DeletionTimestamp != nil) && w.alive(p.mon()) {
			ends[p.mon()] = true
		}
	}
	w.mu.Unlock()
	var lost func(string) bool
	if len(ends) > 0 {
		lost = func(mon string) bool { return ends[mon] }
	}
	if !w.luck(name+" is back", lost, func() { w.hear(name) }) {
		time.AfterFunc(returnsAgain, func() {
			if !w.isOver() {
				w.nodeReturns(name)
			}
		})
	}
}

// hear has a node be heard of again.
func (w *World) hear(name string) {
	for _, pod := range sorted(w.pods) {
		p := w.pods[pod]
		switch {
		case p.Spec.NodeName != name:
		case p.ghost:
			w.dropPod(p)
		case w.deadNodes[name] && !p.ready.IsZero(): // it has been restarted
			p.ready = time.Now().Add(3 * time.Second)
			w.wake(3 * time.Second)
		}
	}
	delete(w.deadNodes, name)
	delete(w.unheard, name)
	if n := w.nodes[name]; n != nil {
		n.Status.Conditions[0].Status = corev1.ConditionTrue
	}
}

// KillLeader kills the mon that leads the others, whatever that costs them, and has it come back after a while. What is
// lost then nobody could have kept, and it is not judged.
func (w *World) KillLeader(back time.Duration) (leader string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	leader = w.leader()
	if leader == "" {
		return ""
	}
	w.reckless = true
	w.tell("mon.%s dies, which leads", leader)
	w.down[leader] = true
	w.pass()
	w.unforeseen()
	time.AfterFunc(back, func() {
		w.luck("mon."+leader+" is started again", nil, func() {
			if delete(w.down, leader); w.alive(leader) {
				w.podOf(leader).ready = time.Now().Add(3 * time.Second)
				w.wake(3 * time.Second)
			}
		})
	})
	return leader
}

// KillLeaderForGood kills the mon that leads, if the others are a majority.
func (w *World) KillLeaderForGood() bool {
	w.mu.Lock()
	leader := w.leader()
	w.mu.Unlock()
	if leader == "" || !w.KillMon(leader) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unforeseen()
	return true
}

// unforeseen: what is asked for in this very moment was asked for before somebody died.
func (w *World) unforeseen() { w.news = time.Now().Add(time.Nanosecond) }

// leader is the first of the monmap that lives.
func (w *World) leader() string {
	for _, m := range w.monmap {
		if w.alive(m.name) {
			return m.name
		}
	}
	return ""
}

// SuccessorNode is the node of the newest canary, or of the newest mon if there is none; "": it has none yet.
func (w *World) SuccessorNode() (node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range sorted(w.pods) {
		if p := w.pods[name]; p.mon() == "" && p.DeletionTimestamp == nil {
			return p.Spec.NodeName
		}
	}
	for _, name := range sorted(w.pods) {
		if p := w.pods[name]; p.DeletionTimestamp == nil && w.newest(p.mon()) {
			node = p.Spec.NodeName
		}
	}
	return node
}
