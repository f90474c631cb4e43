package longhorn

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/internal/longhorn"
)

// This file is how tests look at the World, and how it is put in order again.

// OnKubernetes has f called after every change that a watcher of Kubernetes sees. f must not block.
func (w *World) OnKubernetes(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listener = f
}

// Counted is how often something has happened.
func (w *World) Counted() Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Counts
}

// Status is the policy's.
func (w *World) Status() (s v1alpha1.MaintenancePolicyStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.policy != nil {
		w.policy.Status.DeepCopyInto(&s)
	}
	return s
}

// PolicyExists tells whether it does.
func (w *World) PolicyExists() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.policy != nil
}

// Await waits until cond holds, at most for the given time, and tells whether it does.
func (w *World) Await(within time.Duration, cond func() bool) bool {
	for end := time.Now().Add(within); ; {
		if cond() {
			return true
		}
		if time.Now().After(end) || !w.pause(250*time.Millisecond) {
			return false
		}
	}
}

// Calm undoes what bad luck and people did, but for what announces that nodes leave.
func (w *World) Calm() {
	w.ReturnNodes()
	w.AutoscalerSetting(true)
	w.DrainPolicy(string(defaultDrainPolicy))
	w.OneWriter(!w.opts.ByWorker)
	w.happens(func() {
		for _, key := range sorted(w.pods) {
			if p := w.pods[key]; isHelper(p) {
				w.dropPod(p)
			}
		}
		for _, v := range w.volumes {
			v.person = ""
		}
	})
	w.EditPolicy("as it was", func(s *v1alpha1.LonghornSpec) {
		s.AtRest = "One"
		s.TurnTimeout.Duration, s.RemovalTaintExpiry.Duration = w.opts.Turn, w.opts.TaintExpiry
	})
}

// Empty evicts, every few seconds, what is on nodes that are leaving. One that is empty is removed, or rebooted and
// uncordoned if it was only cordoned. It ends with the World.
func (w *World) Empty() {
	go func() {
		for w.pause(3 * time.Second) {
			for _, name := range w.Nodes() {
				w.emptyOne(name)
			}
		}
	}()
}

func (w *World) emptyOne(name string) {
	is := leaving.Not
	w.happens(func() {
		if n := w.nodes[name]; n != nil && nodeReady(n) {
			is = leaving.Of(n).How(time.Now(), w.expiry())
		}
	})
	if is == leaving.Not {
		return
	}
	empty, _ := w.empties(name, byAutoscaler)
	if !empty {
		return
	}
	if is == leaving.Cordoned {
		go w.reboots(name)
		return
	}
	w.happens(func() {
		n := w.nodes[name]
		_, went := w.went[name]
		if n != nil && heldBack(n) == "" && (went || w.mayGo(n, nil) == "") {
			w.removeNode(name)
		}
	})
}

// Waiting are the nodes that are leaving and have not gone, each with why it may not; "": it may. What is on nodes that
// jobs empty protects nothing.
func (w *World) Waiting(drained ...string) map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]string{}
	for name, n := range w.nodes {
		if isLeaving(n, w.expiry()) {
			out[name] = w.mayGo(n, drained)
		}
	}
	return out
}

// mayGo says why a node may not leave, whatever others do: a volume on it has no usable copy on a node that stays.
func (w *World) mayGo(n *corev1.Node, drained []string) (why string) {
	for _, name := range sorted(w.replicas) {
		r := w.replicas[name]
		if r.node != n.Name || !r.used() {
			continue
		}
		other := false
		for _, o := range w.replicas {
			m := w.nodes[o.node]
			other = other || o.volume == r.volume && o.node != n.Name && o.whole() && m != nil && w.serves(o.node) &&
				!isLeaving(m, w.expiry()) && !slices.Contains(drained, o.node)
		}
		if !other && !w.movable(r) {
			return "the last healthy replica of " + r.volume
		}
	}
	return ""
}

// Stay has every node stay: it is uncordoned, and not tainted any more. One that is being deleted goes.
func (w *World) Stay() {
	w.happens(func() {
		for _, name := range sorted(w.nodes) {
			n := w.nodes[name]
			if n.DeletionTimestamp != nil {
				w.tell("%s is removed by force", name)
				w.machines[name].removed = true
				w.dropNode(name)
				continue
			}
			if len(n.Spec.Taints) > 0 {
				n.Spec.Taints = nil
				w.wroteNode(n)
			}
			w.cordon(name, false, byPerson)
		}
	})
}

// Leftovers are what is not as it should be at rest, when nobody leaves and all instance managers run.
func (w *World) Leftovers() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if w.policy == nil {
		return w.leftOfUs()
	}
	for _, c := range slices.Concat(w.policy.Status.Lease.Holders, w.policy.Status.Lease.Queue) {
		say("%s has a claim", c.WorkflowID)
	}
	unmarked, marked := w.ours()
	switch {
	case !isOurs(unmarked) || !isOurs(marked):
		say("our budgets are not there")
		return out
	case len(leftOut(unmarked))+len(leftOut(marked)) > 0:
		say("open are %v, %v", leftOut(unmarked), leftOut(marked))
	}
	some := false
	for _, name := range sorted(w.nodes) {
		n := w.nodes[name]
		p := w.pods[podKey(Key.Namespace, managerName(name))]
		if !w.serves(name) || w.managers[managerName(name)] == nil || w.managers[managerName(name)].state != running {
			say("the instance manager of %s does not run", name)
			continue
		}
		if kube.OwnCordon(n) {
			say("%s is cordoned by us", name)
		}
		is, has := w.spare(p)
		some = some || is
		switch {
		case has && !is:
			say("%s has a mark that is not its own", p.Name)
		case is && w.keepsAlone(name):
			say("%s is marked, and a volume would have no copy without it that is kept", name)
		case w.relocated(name) != "":
			say("%s gets no replicas, or loses them: %s", name, w.relocated(name))
		case !is && heldBack(n) == "" && w.policy.Spec.Longhorn.EvictOnRemoval: // what it keeps would be moved
		case !is && heldBack(n) == "":
			say("autoscalers are not held back from %s, which is kept", name)
		case !is && n.Annotations[scaleDownDisabled] != "true":
			say("the Cluster Autoscaler is not held back from %s, which is kept", name)
		case is && heldBack(n) != "":
			say("autoscalers are held back from %s, which is not kept", name)
		}
	}
	if some && marked.Status.DisruptionsAllowed != 1 {
		say("%d may go at rest", marked.Status.DisruptionsAllowed)
	}
	return out
}

// spare tells whether a pod carries its own mark, and whether it carries any.
func (w *World) spare(p *corev1.Pod) (is, has bool) {
	mark, has := p.Labels[storageview.MarkLabel]
	return mark == fmt.Sprintf("%s.%d", p.UID, w.restarts(p)), has
}

// keepsAlone tells whether a volume on a node has no usable copy on another one that is kept: an instance manager
// without a mark.
func (w *World) keepsAlone(node string) bool {
	for _, r := range w.replicas {
		if r.node != node || !r.used() {
			continue
		}
		kept := false
		for _, o := range w.replicas {
			if o.volume != r.volume || o.node == node || !o.whole() || !w.serves(o.node) {
				continue
			}
			_, has := w.spare(w.pods[podKey(Key.Namespace, managerName(o.node))])
			kept = kept || !has
		}
		if !kept {
			return true
		}
	}
	return false
}

// leftOfUs is what is left when the policy is gone.
func (w *World) leftOfUs() (out []string) {
	for _, name := range sorted(w.budgets) {
		if isOurs(w.budgets[name]) {
			out = append(out, "budget "+name)
		}
	}
	for _, name := range sorted(w.nodes) {
		if heldBack(w.nodes[name]) != "" {
			out = append(out, "autoscalers are held back from "+name)
		}
		if w.relocated(name) != "" {
			out = append(out, name+" gets no replicas, or loses them")
		}
	}
	for _, key := range sorted(w.pods) {
		if _, has := w.pods[key].Labels[storageview.MarkLabel]; has {
			out = append(out, "a mark on "+key)
		}
	}
	return out
}

// DrainPolicies are the values of the setting node-drain-policy.
func DrainPolicies() (out []string) {
	for _, p := range longhorn.DrainPolicies {
		out = append(out, string(p))
	}
	return out
}
