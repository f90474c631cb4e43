package longhorn

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
)

// This file is what people, autoscalers and bad luck do.

// Nodes are the names of all nodes.
func (w *World) Nodes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return sorted(w.nodes)
}

// pick is one of several names.
func pick(names []string, which int) string {
	if len(names) == 0 {
		return ""
	}
	return names[which%len(names)]
}

// Cordon has a person cordon a node, or uncordon it.
func (w *World) Cordon(name string, on bool) { w.happens(func() { w.cordon(name, on, byPerson) }) }

// KubectlDrain cordons a node, and evicts what is on it until it is empty, or for three minutes. Then the node is
// rebooted and uncordoned; one that could not be emptied is uncordoned, or forgotten.
func (w *World) KubectlDrain(name string) {
	w.Cordon(name, true)
	go func() {
		for range 36 {
			if empty, cordoned := w.empties(name, byPerson); !cordoned {
				return
			} else if empty {
				w.reboots(name)
				return
			}
			if !w.pause(5 * time.Second) {
				return
			}
		}
		w.happens(func() {
			w.tell("kubectl drain %s gives up", name)
			if w.draw(3) > 0 {
				w.cordon(name, false, byPerson)
			}
		})
	}()
}

// empties evicts what is on a node, once, and tells whether nothing is left, and whether the node is cordoned.
func (w *World) empties(name string, who owner) (empty, cordoned bool) {
	w.happens(func() {
		n := w.nodes[name]
		if cordoned = n != nil && n.Spec.Unschedulable; n == nil {
			return
		}
		empty = true
		for _, key := range sorted(w.pods) {
			if p := w.pods[key]; p.Spec.NodeName == name && !isHelper(p) {
				empty = false
				_ = w.evict(p, who)
			}
		}
	})
	return empty, cordoned
}

// reboots has a machine reboot, and uncordons its node when it is back.
func (w *World) reboots(name string) {
	w.LoseNode(name)
	if !w.pause(w.between(3*time.Second, 30*time.Second)) {
		return
	}
	w.happens(func() { w.returnNode(name) })
	if w.pause(2 * time.Second) {
		w.Cordon(name, false)
	}
}

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

// DeleteNode has a person delete a Node. Its machine is still there.
func (w *World) DeleteNode(name string) {
	w.happens(func() {
		if w.nodes[name] != nil && len(w.nodes) > 2 {
			w.tell("a person deletes node %s", name)
			w.dropNode(name)
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

// AddNode has the autoscaler add a node.
func (w *World) AddNode() {
	w.happens(func() {
		if len(w.nodes) >= 8 {
			return
		}
		name := nodeName(len(w.machines))
		w.tell("%s is new", name)
		w.addNode(name)
	})
}

// Taint writes an autoscaler's taint on a node.
func (w *World) Taint(name, key, value string) {
	w.happens(func() { w.taint(name, key, value) })
}

func (w *World) taint(name, key, value string) {
	n := w.nodes[name]
	if n == nil {
		return
	}
	w.tell("%s is tainted %s=%s", name, key, value)
	w.doomed[name] = time.Now()
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule})
	w.wroteNode(n)
}

// Untaint takes all taints of a node away.
func (w *World) Untaint(name string) {
	w.happens(func() {
		if n := w.nodes[name]; n != nil && len(n.Spec.Taints) > 0 {
			w.tell("%s is not tainted any more", name)
			n.Spec.Taints = nil
			w.wroteNode(n)
		}
	})
}

// FreshTaint is the value of a taint that was set just now, ago or in the future.
func FreshTaint(ago time.Duration) string { return strconv.FormatInt(time.Now().Add(-ago).Unix(), 10) }

// Autoscale has Cluster Autoscaler, or Karpenter, remove a node: it taints the node, evicts what is on it, and removes
// the machine when it is empty. After two minutes it gives up, and takes its taint back, or forgets it; Karpenter goes
// on for as long as the object is being deleted. A node from which it is held back it does not choose.
func (w *World) Autoscale(name string, karpenter bool, manner int) {
	chosen := false
	w.happens(func() {
		n := w.nodes[name]
		if n == nil || len(w.nodes) <= 3 || n.DeletionTimestamp != nil {
			return
		}
		if n.Annotations["cluster-autoscaler.kubernetes.io/scale-down-disabled"] == "true" {
			w.HeldBack++
			w.tell("autoscalers are held back from %s", name)
			return
		}
		chosen = true
		if !karpenter {
			w.taint(name, leaving.RemovalTaint, FreshTaint(0))
			if manner%3 == 0 { // 1.34 and newer
				w.cordon(name, true, byAutoscaler)
			}
			return
		}
		w.taint(name, leaving.DisruptedTaint, "")
		if manner%2 == 0 {
			w.tell("%s is being deleted", name)
			now := metav1.Now()
			n.DeletionTimestamp, n.Finalizers = &now, []string{"karpenter.sh/termination"}
			w.wroteNode(n)
		}
	})
	if chosen {
		go w.scalesDown(name, manner)
	}
}

// scalesDown empties a node and removes it, or gives up.
func (w *World) scalesDown(name string, manner int) {
	for range 24 {
		going, gone := false, false
		empty, _ := w.empties(name, byAutoscaler)
		w.happens(func() {
			n := w.nodes[name]
			going, gone = n != nil && isLeaving(n, w.expiry()), n == nil
		})
		switch {
		case gone || !going:
			return
		case empty && !w.pause(w.between(time.Second, 10*time.Second)):
			return
		case empty:
			w.happens(func() { w.removeNode(name) })
			return
		}
		if !w.pause(5 * time.Second) {
			return
		}
	}
	if manner%5 != 0 {
		w.rollBack(name)
	}
}

// rollBack is an autoscaler that gives a node up.
func (w *World) rollBack(name string) {
	w.happens(func() {
		if n := w.nodes[name]; n != nil && n.DeletionTimestamp == nil {
			w.tell("the autoscaler gives up %s", name)
			n.Spec.Taints = nil
			w.wroteNode(n)
			w.cordon(name, false, byAutoscaler)
		}
	})
}

// removeNode removes a machine for good, unless its node is to stay by now, or something is on it again.
func (w *World) removeNode(name string) {
	n := w.nodes[name]
	if n == nil || !isLeaving(n, w.expiry()) {
		return
	}
	for _, p := range w.pods {
		if p.Spec.NodeName == name && p.Status.Phase != corev1.PodPending {
			return
		}
	}
	w.judgeRemoval(name)
	w.tell("%s is removed", name)
	w.Removed++
	w.machines[name].removed = true
	w.dropNode(name)
}

// Volume has something happen to a volume: it is attached by a workload or a person, detached, made or deleted.
func (w *World) Volume(what string, which int) {
	w.happens(func() {
		v := w.volumes[pick(sorted(w.volumes), which)]
		if what == "create" && len(w.volumes) < 8 {
			v = w.addVolume(1 + which%3)
			for range v.copies {
				if node := w.roomFor(v); node != "" {
					w.addReplica(v, node)
				}
			}
		}
		if v == nil {
			return
		}
		switch what {
		case "attach":
			v.workload, v.person = false, pick(sorted(w.nodes), which/3)
		case "workload", "create":
			v.workload, v.person = true, ""
		case "detach":
			v.workload, v.person = false, ""
		case "delete":
			if v.state != detached || w.pods[podKey(apps, "app-"+v.name)] != nil {
				return
			}
			for _, r := range w.of(v) {
				w.dropReplica(r)
			}
			delete(w.volumes, v.name)
			w.stir("Volume")
		}
		w.tell("volume %s: %s", v.name, what)
	})
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

// Setting changes a setting of Longhorn's.
func (w *World) Setting(name, value string) {
	w.happens(func() {
		if w.settings[name] == value {
			return
		}
		w.tell("setting %s: %s", name, value)
		w.old = append(w.old, oldSetting{name, w.settings[name], time.Now()})
		w.settings[name] = value
		w.stir("Setting")
	})
}

// AutoscalerSetting and DrainPolicy change the two settings that decide.
func (w *World) AutoscalerSetting(on bool) { w.Setting(settingAutoscaler, strconv.FormatBool(on)) }

// DrainPolicy changes the setting node-drain-policy.
func (w *World) DrainPolicy(value string) { w.Setting(settingDrainPolicy, value) }

// OneWriter installs the admission policy, or takes it away.
func (w *World) OneWriter(on bool) {
	w.happens(func() {
		if w.oneWriter == on {
			return
		}
		w.tell("the admission policy is %s", map[bool]string{true: "installed", false: "deleted"}[on])
		w.oneWriter, w.handedOver = on, time.Now()
		if !on {
			w.guarding = false
		}
	})
}

// Tamper has a person delete one of our budgets, or have it let go of everything.
func (w *World) Tamper(which int) {
	w.happens(func() {
		unmarked, marked := w.ours()
		b := unmarked
		if which%2 == 0 {
			b = marked
		}
		if b == nil {
			return
		}
		w.tampered[b.Name] = true
		if which/2%2 == 0 {
			w.dropBudget(b.Name, byPerson)
			return
		}
		b = b.DeepCopy()
		none := intstr.FromInt32(0)
		b.Spec.MinAvailable, b.Spec.MaxUnavailable = &none, nil
		_, err := w.putBudget(b, byPerson)
		if err != nil {
			panic(err) // the selector was valid before
		}
	})
}

// EditPolicy changes the policy.
func (w *World) EditPolicy(what string, change func(*v1alpha1.LonghornSpec)) {
	w.happens(func() {
		if w.policy == nil {
			return
		}
		w.tell("a person edits the policy: %s", what)
		next := w.policy.DeepCopy()
		change(next.Spec.Longhorn)
		w.putPolicy(next)
	})
}

// DeletePolicy has a person delete the policy.
func (w *World) DeletePolicy() {
	w.happens(func() {
		if w.policy == nil || w.policy.DeletionTimestamp != nil {
			return
		}
		w.tell("a person deletes the policy")
		next := w.policy.DeepCopy()
		now := metav1.Now()
		next.DeletionTimestamp = &now
		w.putPolicy(next)
	})
}

func isHelper(p *corev1.Pod) bool { return p.Labels[kube.LonghornComponent] == "share-manager" }

// Helper has a share manager run on a node, or ends it.
func (w *World) Helper(name string, on bool) {
	w.happens(func() {
		key := podKey(Key.Namespace, "share-manager-"+name)
		switch p := w.pods[key]; {
		case on && p == nil && w.nodes[name] != nil:
			p = &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: Key.Namespace, Name: "share-manager-" + name,
					Labels: map[string]string{kube.LonghornComponent: "share-manager"},
				},
				Spec: corev1.PodSpec{NodeName: name},
			}
			w.putPod(p)
			w.setReady(p, true)
		case !on && p != nil:
			w.dropPod(p)
		}
	})
}

// Hammer begins to evict whatever may be evicted, at every change, and returns what ends it.
func (w *World) Hammer() (stop func()) {
	ended := make(chan struct{})
	go func() {
		for {
			w.mu.Lock()
			changed := w.changed
			w.mu.Unlock()
			w.happens(func() { w.evictAll() })
			select {
			case <-changed:
			case <-time.After(2 * time.Second):
			case <-ended:
				return
			case <-w.end.Done():
				return
			}
			if !w.pause(w.between(0, 20*time.Millisecond)) {
				return
			}
		}
	}()
	return func() { close(ended) }
}

// evictAll asks for the eviction of each instance manager that serves, in any order.
func (w *World) evictAll() {
	keys := sorted(w.pods)
	if len(keys) == 0 {
		return
	}
	first := w.draw(len(keys))
	for i := range keys {
		p := w.pods[keys[(first+i)%len(keys)]]
		if p != nil && p.Labels[kube.LonghornComponent] == kube.InstanceManager && podReady(p) {
			_ = w.evict(p, byHammer)
		}
	}
}
