package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

type node struct {
	name, zone, uid       string
	boot                  int
	ready, cordoned, gone bool
	tainted               string
	cordonedBy            flagOwner
	rebooting             bool
}

// pod is one pod of an OSD's Deployment, which is pinned to its node.
type pod struct {
	name  string
	osd   int
	node  string
	bound bool // to the node
	state storage.PodState
}

// podOf is the pod of an OSD that is not on its way out.
func (w *World) podOf(osd int) *pod {
	for _, p := range w.pods {
		if p.osd == osd && p.state != storage.PodTerminating {
			return p
		}
	}
	return nil
}

// remove ends a pod, gracefully, and has its Deployment make another one.
func (w *World) remove(p *pod) {
	if p.state == storage.PodTerminating {
		return
	}
	bound := p.bound
	p.state = storage.PodTerminating
	next := &pod{name: fmt.Sprintf("osd-%d-%d", p.osd, time.Since(w.started).Milliseconds()), osd: p.osd, node: p.node, state: storage.PodPending}
	w.later(50*time.Millisecond, func() {
		w.pods = append(w.pods, next)
		w.kubeChanged()
		w.schedule()
	})
	w.later(podGrace, func() {
		w.pods = slices.DeleteFunc(w.pods, func(x *pod) bool { return x == p })
		if bound {
			w.stopOSD(w.osds[p.osd])
		}
		w.kubeChanged()
		w.schedule()
	})
	w.kubeChanged()
}

// schedule binds the pods that wait and can.
func (w *World) schedule() {
	for _, p := range w.pods {
		n := w.nodes[p.node]
		if p.bound || p.state != storage.PodPending || n == nil || n.gone || n.cordoned || n.tainted != "" || !n.ready {
			continue
		}
		if slices.ContainsFunc(w.pods, func(x *pod) bool { return x.osd == p.osd && x.state == storage.PodTerminating }) {
			continue
		}
		p.bound = true
		w.later(podStarts, func() { w.run(p) })
	}
}

// run starts a pod's process. It is ready before its OSD is up, as without a readiness probe.
func (w *World) run(p *pod) {
	if p.state == storage.PodTerminating || !p.bound || !slices.Contains(w.pods, p) {
		return
	}
	if n := w.nodes[p.node]; n == nil || n.gone || !n.ready {
		return
	}
	if w.osds[p.osd].dead {
		p.state = storage.PodNotReady
		w.kubeChanged()
		return
	}
	p.state = storage.PodReady
	w.startOSD(w.osds[p.osd])
	w.kubeChanged()
}

// What persons and bad luck do to Kubernetes.

// PersonCordons cordons or uncordons a node.
func (w *World) PersonCordons(name string, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cordon(name, on, byPerson)
}

func (w *World) cordon(name string, on bool, who flagOwner) {
	n := w.nodes[name]
	if n == nil || n.gone || n.cordoned == on {
		return
	}
	w.tell("%s %s %s", who, map[bool]string{true: "cordons", false: "uncordons"}[on], name)
	n.cordoned, n.cordonedBy = on, who
	w.kubeChanged()
	w.schedule()
}

// Taint announces the removal of a node, as an autoscaler does; "" takes that back.
func (w *World) Taint(name, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell("%s is tainted %q", name, key)
	w.nodes[name].tainted = key
	w.kubeChanged()
	w.schedule()
}

// Reboot restarts a node. What runs there dies; what is bound there comes back with it.
func (w *World) Reboot(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[name]
	if n == nil || n.gone || n.rebooting {
		return
	}
	w.tell("%s reboots", name)
	n.rebooting, n.ready = true, false
	for _, p := range w.pods {
		if p.node == name && p.bound && p.state != storage.PodTerminating {
			p.state = storage.PodNotReady
			w.crashed = time.Now()
			w.stopOSD(w.osds[p.osd])
		}
	}
	w.kubeChanged()
	w.later(reboots, func() {
		n.rebooting, n.ready = false, true
		n.boot++
		w.tell("%s is back", name)
		for _, p := range slices.Clone(w.pods) {
			if p.node == name && p.bound {
				w.later(podStarts, func() { w.run(p) })
			}
		}
		w.kubeChanged()
		w.schedule()
	})
}

// DeleteNode deletes the Node object and all that runs there.
func (w *World) DeleteNode(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[name]
	if n == nil || n.gone {
		return
	}
	w.tell("%s is deleted", name)
	n.gone = true
	for _, p := range slices.Clone(w.pods) {
		if p.node == name && p.bound && p.state != storage.PodTerminating {
			w.crashed = time.Now()
			w.remove(p)
		}
	}
	w.kubeChanged()
}

// RestoreNode registers a deleted node again, as another object.
func (w *World) RestoreNode(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[name]
	if n == nil || !n.gone {
		return
	}
	w.tell("%s is registered again", name)
	*n = node{name: n.name, zone: n.zone, uid: n.uid + "+", boot: n.boot + 1, ready: true}
	w.kubeChanged()
	w.schedule()
}

// Manage switches managePodBudgets.
func (w *World) Manage(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.policy == nil {
		return
	}
	w.tell("managePodBudgets: %t", on)
	w.policy.Generation++
	w.policy.Spec.Ceph.ManagePodBudgets = &on
	w.guarding = time.Time{}
	w.kubeChanged()
}

// DeletePolicy begins the deletion of the policy; the keeper's finalizer may hold it up.
func (w *World) DeletePolicy() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.policy == nil {
		return
	}
	w.tell("the policy is deleted")
	at := now()
	w.policy.DeletionTimestamp = &at
	w.guarding = time.Time{}
	w.dropPolicy()
	w.kubeChanged()
}

func (w *World) dropPolicy() {
	if w.policy != nil && w.policy.DeletionTimestamp != nil && len(w.policy.Finalizers) == 0 {
		w.tell("the policy is gone")
		w.policy = nil
	}
}
