package longhorn

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/test/sim/kubeapi"
)

// This file is Longhorn's own Node objects, by which it is told that a node gets no more replicas, and that those that
// it has are to be moved.

// ownNode is Longhorn's object of a node.
type ownNode struct {
	closed, evicts bool // no allowScheduling, and evictionRequested
	annotations    map[string]string
	version        int
	hears          time.Time // when Longhorn acts by it
}

// own is Longhorn's object of a node. It is there as long as the node is, and until Longhorn has noticed that it is
// not.
func (w *World) own(name string) *ownNode {
	n := w.ownNodes[name]
	if n == nil {
		n = &ownNode{}
		w.ownNodes[name] = n
	}
	return n
}

func (w *World) ownObject(name string) map[string]any {
	n := w.own(name)
	annotations := map[string]any{}
	for key, value := range n.annotations {
		annotations[key] = value
	}
	metadata := map[string]any{"resourceVersion": strconv.Itoa(n.version)}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	return map[string]any{
		"metadata": metadata, "spec": map[string]any{"allowScheduling": !n.closed, "evictionRequested": n.evicts},
	}
}

// patchOwn changes one of Longhorn's objects of nodes, as its webhook allows.
func (w *World) patchOwn(o *unstructured.Unstructured, patch client.Patch) error {
	if w.nodes[o.GetName()] == nil && w.ownNodes[o.GetName()] == nil {
		return kubeapi.NotFound("nodes.longhorn.io", o.GetName())
	}
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	changes, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return err
	}
	before, err := json.Marshal(w.ownObject(o.GetName()))
	if err != nil {
		return err
	}
	after, err := changes.Apply(before)
	if err != nil {
		return invalid("Node", o.GetName())
	}
	var next unstructured.Unstructured
	if err := json.Unmarshal(after, &next.Object); err != nil {
		return err
	}
	allows, _, _ := unstructured.NestedBool(next.Object, "spec", "allowScheduling")
	evicts, _, _ := unstructured.NestedBool(next.Object, "spec", "evictionRequested")
	if allows && evicts {
		return invalid("Node", o.GetName()) // "need to disable scheduling before"
	}
	n := w.own(o.GetName())
	if n.closed != !allows || n.evicts != evicts {
		w.tell("longhorn: %s gets replicas: %t, and they are moved away: %t", o.GetName(), allows, evicts)
		n.hears = time.Now().Add(w.between(0, 2*time.Second))
	}
	n.closed, n.evicts, n.annotations, n.version = !allows, evicts, next.GetAnnotations(), n.version+1
	return nil
}

// passOwn has Longhorn ask the replicas of a node to go, or not any more.
func (w *World) passOwn() {
	for _, name := range sorted(w.ownNodes) {
		n := w.ownNodes[name]
		if w.nodes[name] == nil {
			delete(w.ownNodes, name)
			continue
		}
		if time.Now().Before(n.hears) {
			continue
		}
		for _, r := range w.replicas {
			if r.node == name && r.evicted != n.evicts {
				r.evicted = n.evicts
				w.stir("Replica")
			}
		}
	}
}

// evicts has a copy made for one that is evicted. It tells whether there is one.
func (w *World) evicts(v *volume) bool {
	replicas := w.of(v)
	under := slices.ContainsFunc(replicas, func(r *replica) bool { return !r.rebuilt.IsZero() })
	whole := slices.ContainsFunc(replicas, func(r *replica) bool { return r.whole() && w.serves(r.node) })
	if !whole || !slices.ContainsFunc(replicas, func(r *replica) bool { return r.evicted && r.used() }) {
		return false
	}
	if under {
		return true
	}
	w.mend(v, time.Second, func() {
		node := w.roomFor(v)
		if node == "" {
			return
		}
		r := w.addReplica(v, node)
		r.wanted, r.process, r.placed = true, running, time.Now()
		r.rebuilt = time.Now().Add(w.between(500*time.Millisecond, 10*time.Second))
		w.tell("longhorn: %s is to be moved to %s", v.name, node)
	})
	return true
}

// moved: a copy is whole, and what is evicted of its volume goes.
func (w *World) moved(r *replica) {
	if r.evicted {
		return
	}
	for _, o := range w.of(w.volumes[r.volume]) {
		if o.evicted {
			w.tell("longhorn: %s is moved away from %s", o.volume, o.node)
			w.dropReplica(o)
			w.Moved++
		}
	}
}

// movable tells whether a copy on a node that is removed will be moved away, so that the node can leave.
func (w *World) movable(r *replica) bool {
	n := w.nodes[r.node]
	how := leaving.Of(n).How(time.Now(), w.expiry())
	removed := how != leaving.Not && how != leaving.Cordoned
	return w.policy != nil && w.policy.Spec.Longhorn.EvictOnRemoval && removed && r.whole() && w.serves(r.node) &&
		w.settings[settingAutoscaler] == "true" && w.roomFor(w.volumes[r.volume]) != ""
}

// relocated is what of ours is on one of Longhorn's nodes; "": nothing.
func (w *World) relocated(name string) string { return w.own(name).annotations[kube.Relocates] }
