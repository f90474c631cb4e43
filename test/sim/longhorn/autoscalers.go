package longhorn

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/internal/leaving"
)

// This file is what autoscalers do: they add nodes, and taint, empty and remove them.

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

const scaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

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
		if n.Annotations[scaleDownDisabled] == "true" {
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
