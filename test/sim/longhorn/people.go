package longhorn

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// This file is what people do with nodes and volumes.

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

// DeleteNode has a person delete a Node. Its machine is still there.
func (w *World) DeleteNode(name string) {
	w.happens(func() {
		if w.nodes[name] != nil && len(w.nodes) > 2 {
			w.tell("a person deletes node %s", name)
			w.dropNode(name)
		}
	})
}

// Unhold has a person take away what holds the Cluster Autoscaler back from a node, or all that lockkeeper set there.
func (w *World) Unhold(name string, all bool) {
	w.happens(func() {
		n := w.nodes[name]
		if n == nil || heldBack(n) == "" {
			return
		}
		w.tell("a person takes what holds autoscalers back off %s, all: %t", name, all)
		if delete(n.Annotations, scaleDownDisabled); all {
			delete(n.Annotations, "karpenter.sh/do-not-disrupt")
			delete(n.Annotations, kube.HeldBack)
		}
		w.wroteNode(n)
	})
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
