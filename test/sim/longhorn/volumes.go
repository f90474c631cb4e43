package longhorn

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/internal/longhorn"
)

// This file is Longhorn's volumes, and the workloads that use them.

// States of volumes.
const (
	detached  = "detached"
	attaching = "attaching"
	attached  = "attached"
	detaching = "detaching"
)

// volume is a volume.
type volume struct {
	name   string
	copies int // replicas that it should have
	state  string
	engine string    // the node on which its engine runs
	since  time.Time // when the engine came there
	due    time.Time // when what is under way is done
	// workload: a pod uses it, and it is attached where that is. person: a person has it attached there.
	workload bool
	person   string
	mends    time.Time // when it is salvaged, a copy is made, or one is moved from a cordoned node; zero: nothing is to do
}

// replica is one copy of a volume.
type replica struct {
	name, volume, node string
	healthy, failed    bool
	evicted            bool      // it goes as soon as another copy is whole
	placed             time.Time // when it had its node, if one that is evicted is moved to it
	wanted             bool      // desireState is running
	process            string    // currentState
	rebuilt            time.Time
	since              time.Time // when it had its data
	hears              time.Time // when Longhorn hears that its process is dead
	woken              time.Time // when it was idle last
	// fell is since when it is not whole, by bad luck.
	fell time.Time
}

func (r *replica) used() bool  { return r.healthy || r.failed }
func (r *replica) whole() bool { return r.healthy && !r.failed }
func (r *replica) idle() bool  { return !r.wanted && r.process == stopped }

func (w *World) addVolume(copies int) *volume {
	w.volumesMade++
	v := &volume{name: volumeName(w.volumesMade - 1), copies: copies, state: detached}
	w.volumes[v.name] = v
	w.stir("Volume")
	return v
}

func (w *World) addReplica(v *volume, node string) *replica {
	w.made++
	r := &replica{name: fmt.Sprintf("%s-r-%d", v.name, w.made), volume: v.name, node: node, process: stopped}
	w.replicas[r.name] = r
	w.stir("Replica")
	return r
}

func (w *World) dropReplica(r *replica) {
	delete(w.replicas, r.name)
	w.stir("Replica")
}

// of are the replicas of a volume, by name.
func (w *World) of(v *volume) (out []*replica) {
	for _, name := range sorted(w.replicas) {
		if r := w.replicas[name]; r.volume == v.name {
			out = append(out, r)
		}
	}
	return out
}

// passReplica has a process that lost its instance manager fail, and a rebuild end.
func (w *World) passReplica(r *replica) {
	now := time.Now()
	switch serves := w.serves(r.node); {
	case r.process == running && !serves && r.hears.IsZero():
		r.hears = now.Add(w.between(0, 2*time.Second))
	case r.process == running && !serves && !now.Before(r.hears):
		w.fail(r)
	case r.process == running && serves:
		r.hears = time.Time{}
		if !r.rebuilt.IsZero() && !now.Before(r.rebuilt) {
			w.becomesWhole(r)
		}
	}
}

func (w *World) becomesWhole(r *replica) {
	if !r.used() {
		r.since = time.Now()
		if !r.placed.IsZero() { // from then on it was to be seen that this copy will be the last
			r.since = r.placed
		}
	}
	r.healthy, r.failed, r.rebuilt, r.fell = true, false, time.Time{}, time.Time{}
	w.moved(r)
	w.stir("Replica")
}

// fail ends the process of a replica, which has not all that is written from now on.
func (w *World) fail(r *replica) {
	if w.wentAt(r.node).IsZero() {
		r.fell = time.Now()
	}
	if r.healthy {
		r.failed = true
	}
	r.process, r.hears, r.rebuilt = stopped, time.Time{}, time.Time{}
	w.stir("Replica")
}

// wants is where a volume is to be attached; "": nowhere.
func (w *World) wants(v *volume) string {
	if !v.workload {
		return v.person
	}
	p := w.pods[podKey(apps, "app-"+v.name)]
	if p == nil {
		return ""
	}
	return p.Spec.NodeName
}

// passVolume takes a volume a step on.
func (w *World) passVolume(v *volume) {
	w.passWorkload(v)
	now, wants := time.Now(), w.wants(v)
	switch v.state {
	case detached:
		w.passDetached(v, wants)
	case attaching:
		if wants != v.engine && v.engine != "" || !w.serves(wants) {
			w.detach(v)
			return
		}
		if now.Before(v.due) {
			return
		}
		v.state = attached
		w.stir("Volume")
	case attached:
		w.passAttached(v, wants)
	case detaching:
		if now.Before(v.due) {
			return
		}
		v.state, v.engine = detached, ""
		for _, r := range w.of(v) {
			switch {
			case r.process == running && !r.used():
				w.dropReplica(r) // a rebuild that was not done
			case r.process == running:
				r.process, r.wanted = stopped, false
				w.stir("Replica")
			}
		}
		w.stir("Volume")
		w.stir("InstanceManager")
	}
}

func (w *World) detach(v *volume) {
	v.state, v.due, v.mends = detaching, time.Now().Add(w.between(500*time.Millisecond, 2*time.Second)), time.Time{}
	for _, r := range w.of(v) {
		r.wanted = false
	}
	w.stir("Volume")
	w.stir("Replica")
}

// passDetached attaches a volume, if it is wanted and there is a copy; and salvages one that has none any more.
func (w *World) passDetached(v *volume, wants string) {
	now := time.Now()
	replicas := w.of(v)
	fresh := !slices.ContainsFunc(replicas, (*replica).used)
	runs := func(r *replica) bool { return (r.whole() || fresh && !r.used()) && w.serves(r.node) }
	switch {
	case !fresh && !slices.ContainsFunc(replicas, (*replica).whole):
		w.mend(v, 5*time.Second, func() { w.salvage(replicas) })
		return
	case wants == "":
		if !w.moves(v) && !w.evicts(v) {
			v.mends = time.Time{}
		}
		return
	case !w.serves(wants) || !slices.ContainsFunc(replicas, runs):
		return
	}
	v.mends = time.Time{}
	v.state, v.engine, v.since, v.due = attaching, wants, now, now.Add(w.between(2*time.Second, 7*time.Second))
	for _, r := range replicas {
		switch {
		case runs(r):
			r.wanted, r.process, r.woken = true, running, now
			if fresh {
				r.rebuilt = v.due
			}
		case r.whole(): // what is written from now on it does not have
			r.failed = true
			if w.wentAt(r.node).IsZero() {
				r.fell = now
			}
		}
	}
	w.stir("Volume")
	w.stir("Replica")
	w.stir("InstanceManager")
}

// mend does something after a while, once.
func (w *World) mend(v *volume, after time.Duration, do func()) {
	switch now := time.Now(); {
	case v.mends.IsZero():
		v.mends = now.Add(w.between(after, 2*after))
	case !now.Before(v.mends):
		v.mends = time.Time{}
		do()
	}
}

// salvage takes one of the copies that failed for whole again.
func (w *World) salvage(replicas []*replica) {
	for _, r := range replicas {
		if r.failed && w.serves(r.node) {
			w.becomesWhole(r)
			return
		}
	}
}

// passAttached ends what cannot go on, and makes the copies that are missing.
func (w *World) passAttached(v *volume, wants string) {
	replicas := w.of(v)
	lives := func(r *replica) bool { return r.whole() && r.process == running }
	if wants != v.engine || !w.serves(v.engine) || !slices.ContainsFunc(replicas, lives) {
		w.detach(v)
		return
	}
	whole, under := 0, false
	for _, r := range replicas {
		if lives(r) {
			whole++
		}
		under = under || !r.rebuilt.IsZero()
	}
	switch {
	case whole < v.copies && !under:
		w.mend(v, 3*time.Second, func() { w.rebuild(v, replicas) })
	case whole >= v.copies && w.evicts(v): // of which a copy is made
	case whole >= v.copies:
		if !w.moves(v) {
			v.mends = time.Time{}
		}
		for _, r := range replicas {
			if !r.whole() {
				w.dropReplica(r)
			}
		}
	}
}

// rebuild begins a copy: where one failed, or on a node that has none.
func (w *World) rebuild(v *volume, replicas []*replica) {
	var r *replica
	for _, x := range replicas {
		if x.process == stopped && w.serves(x.node) {
			r = x
		}
	}
	if r == nil {
		node := w.roomFor(v)
		if node == "" {
			return
		}
		r = w.addReplica(v, node)
	}
	r.healthy, r.failed, r.wanted, r.process = false, false, true, running
	r.rebuilt = time.Now().Add(w.between(2*time.Second, 10*time.Second))
	w.stir("Replica")
}

// roomFor is a node on which a copy of a volume may be made; "": none. Longhorn knows cordons, and no taints.
func (w *World) roomFor(v *volume) string {
	has := map[string]bool{}
	for _, r := range w.of(v) {
		has[r.node] = true
	}
	var fit []string
	for _, name := range sorted(w.nodes) {
		if !has[name] && !w.nodes[name].Spec.Unschedulable && !w.own(name).closed && w.serves(name) {
			fit = append(fit, name)
		}
	}
	if len(fit) == 0 {
		return ""
	}
	return fit[w.draw(len(fit))]
}

// moves has a copy on a cordoned node made elsewhere, and then taken away there, as the drain policies want that block
// for eviction. It tells whether there is one.
func (w *World) moves(v *volume) bool {
	policy := longhorn.DrainPolicy(w.settings[settingDrainPolicy])
	if policy != longhorn.BlockForEviction && policy != longhorn.BlockForEvictionIfContainsLastReplica {
		return false
	}
	replicas := w.of(v)
	for _, r := range replicas {
		n := w.nodes[r.node]
		if n == nil || !n.Spec.Unschedulable || !r.whole() {
			continue
		}
		if policy == longhorn.BlockForEvictionIfContainsLastReplica && slices.ContainsFunc(replicas, func(o *replica) bool {
			return o != r && o.whole() && w.nodes[o.node] != nil && !w.nodes[o.node].Spec.Unschedulable
		}) {
			continue
		}
		w.mend(v, 8*time.Second, func() {
			node := w.roomFor(v)
			if node == "" || !w.serves(r.node) {
				return
			}
			c := w.addReplica(v, node)
			w.becomesWhole(c)
			c.process, c.wanted = r.process, r.wanted
			w.dropReplica(r)
			w.tell("longhorn: %s moves from %s to %s", v.name, r.node, node)
		})
		return true
	}
	return false
}

// passWorkload is the ReplicaSet of a workload, the scheduler and the kubelet.
func (w *World) passWorkload(v *volume) {
	key := podKey(apps, "app-"+v.name)
	p := w.pods[key]
	if !v.workload {
		if p != nil {
			w.remove(p)
		}
		return
	}
	if p == nil {
		controller := true
		p = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: apps, Name: "app-" + v.name, Labels: map[string]string{"app": v.name},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "app-" + v.name, UID: "rs", Controller: &controller,
				}},
			},
			Status: corev1.PodStatus{Phase: corev1.PodPending},
		}
		w.putPod(p)
	}
	if p.DeletionTimestamp != nil {
		return
	}
	if p.Spec.NodeName == "" && v.state == detached {
		var fit []string
		for _, name := range sorted(w.nodes) {
			if n := w.nodes[name]; nodeReady(n) && !n.Spec.Unschedulable && len(n.Spec.Taints) == 0 && w.serves(name) {
				fit = append(fit, name)
			}
		}
		if len(fit) > 0 {
			p.Spec.NodeName = fit[w.draw(len(fit))]
			w.wrotePod(p)
		}
	}
	uses := v.state == attached && v.engine == p.Spec.NodeName
	if uses != podReady(p) && p.Spec.NodeName != "" && nodeReady(w.nodes[p.Spec.NodeName]) {
		w.setReady(p, uses)
	}
}
