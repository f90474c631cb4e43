package mons

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
)

// This file is bad luck, and what people change.

// promised is how long what Ceph was asked for may follow. Bad luck does not strike in between: no order of requests
// could be safe from it.
const promised = 20 * time.Second

// bearable tells whether the quorum survives the loss of some mons, whatever becomes of what is under way.
func (w *World) bearable(lost func(mon string) bool) bool {
	rest, coming, pending := 0, 0, 0
	for _, m := range w.monmap {
		switch p := w.podOf(m.name); {
		case lost(m.name):
		case w.alive(m.name):
			rest++
		case p != nil && p.DeletionTimestamp == nil && !p.shy && !w.down[m.name] && !w.deadNodes[p.Spec.NodeName] &&
			!p.ghost && !p.ready.IsZero():
			coming++
		}
	}
	for _, p := range w.pods { // those that are about to join
		if _, there := w.member(p.mon()); p.mon() == "" || there || w.removed[p.mon()] {
			continue
		}
		starts := p.DeletionTimestamp == nil && (!w.silent(p.Spec.NodeName) || p.Status.Phase == corev1.PodRunning)
		if pending++; !lost(p.mon()) && !w.shy && !w.down[p.mon()] && starts && !w.deadNodes[p.Spec.NodeName] {
			coming++
		}
	}
	n := len(w.monmap)
	joining := pending
	leaving := map[string]bool{}
	for _, p := range w.promises {
		_, there := w.member(p.leaves)
		switch {
		case time.Now().After(p.until):
		case p.stops != "":
			if w.alive(p.stops) && !lost(p.stops) {
				rest, coming = rest-1, coming+1
			}
		case p.leaves == "" && pending == 0:
			joining = 1
		case there:
			leaving[p.leaves] = true
		}
	}
	for name := range leaving {
		left := rest
		if w.alive(name) && !lost(name) {
			left--
		}
		if left+coming < majority(n-1+joining) {
			return false
		}
	}
	// Right now, and when all that is under way has come to pass.
	return rest >= majority(n) && rest+coming >= majority(n+joining)
}

// podOf is the pod of a mon: the one that serves if there are two, or the one that stays.
func (w *World) podOf(mon string) (best *pod) {
	for _, name := range sorted(w.pods) {
		p := w.pods[name]
		if p.mon() == mon && (best == nil || best.ready.IsZero() && (!p.ready.IsZero() || best.DeletionTimestamp != nil)) {
			best = p
		}
	}
	return best
}

// luck changes something, if the quorum survives it, and tells.
func (w *World) luck(what string, lost func(mon string) bool, do func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if lost != nil && !w.bearable(lost) {
		return false
	}
	w.tell("%s", what)
	do()
	w.pass()
	w.wake(30 * time.Millisecond)
	if w.opts.News != nil {
		go w.opts.News(what)
	}
	return true
}

// pick is one of some names.
func pick(names []string, which int) string {
	if len(names) == 0 {
		return ""
	}
	return names[which%len(names)]
}

// Kill kills one of the mons for good, or until Revive.
func (w *World) Kill(which int) bool {
	w.mu.Lock()
	name := pick(w.names(), which)
	w.mu.Unlock()
	return w.KillMon(name)
}

// KillMon kills a mon if the others are a majority.
func (w *World) KillMon(name string) bool {
	return w.luck("mon."+name+" dies", func(mon string) bool { return mon == name }, func() { w.down[name] = true })
}

// Revive has mons live again that were killed; without names, all of them.
func (w *World) Revive(names ...string) {
	w.luck(strings.TrimSpace("mons that were killed are started again "+strings.Join(names, ", ")), nil, func() {
		maps.DeleteFunc(w.down, func(mon string, _ bool) bool { return len(names) == 0 || slices.Contains(names, mon) })
		for _, p := range w.pods {
			if p.mon() != "" && !p.ready.IsZero() && !w.alive(p.mon()) {
				p.ready = time.Now().Add(3 * time.Second)
				w.wake(3 * time.Second)
			}
		}
	})
}

// Shy has newcomers never come into quorum, or not any more.
func (w *World) Shy(on bool) {
	w.mu.Lock()
	before := w.shy
	w.shy = on
	bearable := !on || w.bearable(func(string) bool { return false })
	if !bearable {
		w.shy = before
	}
	if !on {
		for _, p := range w.pods {
			p.shy = false
		}
	}
	w.tell("newcomers never join: %t", w.shy)
	w.pass()
	w.mu.Unlock()
}

// on tells whether a mon's pod is on a node.
func (w *World) on(node string) func(mon string) bool {
	return func(mon string) bool {
		for _, p := range w.pods {
			if p.mon() == mon && p.Spec.NodeName == node {
				return true
			}
		}
		return false
	}
}

func (w *World) nodeAt(which int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return pick(sorted(w.nodes), which)
}

// busyNode is a node that has one of the mons.
func (w *World) busyNode(which int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.podOf(pick(w.names(), which)); p != nil {
		return p.Spec.NodeName
	}
	return ""
}

// NodeDies has the node of a mon stop, with all that is on it.
func (w *World) NodeDies(which int) {
	name := w.busyNode(which)
	if name != "" {
		w.SilenceNode(name, true)
	}
}

// NodesReturn has all nodes work again; deleted ones come back, and with empty disks if their disks were lost.
func (w *World) NodesReturn() {
	w.luck("all nodes are back, or will be", nil, func() {
		for i := range w.opts.Zones * w.opts.PerZone {
			name := "n" + string(rune('0'+i))
			if w.nodes[name] == nil {
				w.addNode(name, zones[i%w.opts.Zones])
				if w.silent(name) { // its machine runs
					w.nodes[name].Status.Conditions[0].Status = corev1.ConditionUnknown
				}
			}
		}
		clear(w.draining)
		for _, n := range w.nodes {
			n.Spec.Unschedulable = false
		}
	})
	w.mu.Lock()
	silent := sorted(w.unheard)
	w.mu.Unlock()
	for _, name := range silent {
		w.nodeReturns(name)
	}
}

// DeleteNode deletes the node of a mon, with its disk.
func (w *World) DeleteNode(which int) {
	name := w.busyNode(which)
	if name == "" || len(w.nodes) <= w.opts.Zones*w.opts.PerZone-2 {
		return
	}
	w.luck(name+" is deleted", w.on(name), func() {
		delete(w.nodes, name)
		delete(w.deadNodes, name)
		delete(w.unheard, name)
		w.upset = time.Now()
		for _, pod := range sorted(w.pods) { // also those that only its machine knew of still
			if p := w.pods[pod]; p.Spec.NodeName == name {
				w.dropPod(p)
			}
		}
		for place := range w.stores {
			if len(place) > len(name) && place[:len(name)+1] == name+"/" {
				delete(w.stores, place)
			}
		}
	})
}

// evictsAfter is how long a drain takes until it evicts: it waits for the lease, and for the budgets.
const evictsAfter = 30 * time.Second

// Drain has somebody empty the node of a mon, with which the keeper goes along, until NodesReturn.
func (w *World) Drain(which int) {
	name := w.busyNode(which)
	if name == "" {
		return
	}
	w.luck(name+" is drained", nil, func() {
		if n := w.nodes[name]; n != nil {
			n.Spec.Unschedulable, w.draining[name] = true, true
		}
	})
	time.AfterFunc(evictsAfter, func() {
		if !w.isOver() {
			w.luck(name+" is emptied", w.on(name), func() { w.evict(name) })
		}
	})
}

func (w *World) isOver() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

// evict ends the pods of mons on a node that is drained.
func (w *World) evict(node string) {
	if !w.draining[node] || w.silent(node) {
		return
	}
	w.upset = time.Now()
	for _, p := range w.pods {
		mon := p.mon()
		if mon == "" || p.Spec.NodeName != node || p.DeletionTimestamp != nil {
			continue
		}
		if w.cephMon != nil && w.alive(mon) && slices.ContainsFunc(w.cephMon.Status.Mons,
			func(m v1alpha1.MonStatus) bool { return m.Name == mon && m.Node == node }) {
			w.evicted[mon] = node
		}
		now := time.Now() // at once: bad luck counts who lives
		p.DeletionTimestamp, p.due = &metav1.Time{Time: now}, now
	}
}

// Relabel has the node of a mon say that it is in another zone.
func (w *World) Relabel(which int, zone string) {
	name := w.busyNode(which)
	w.luck(name+" is in zone "+zone, nil, func() { w.nodes[name].Labels[corev1.LabelTopologyZone] = zone })
}

// Cordon cordons a node, or makes it schedulable again.
func (w *World) Cordon(which int, on bool) {
	name := w.nodeAt(which)
	w.luck(name+" is cordoned, or not any more", nil, func() { w.nodes[name].Spec.Unschedulable = on })
}

// CordonAll leaves no node for a newcomer.
func (w *World) CordonAll() {
	w.luck("all nodes are cordoned", nil, func() {
		for _, n := range w.nodes {
			n.Spec.Unschedulable = true
		}
	})
}

// Full leaves the scheduler no room in a zone, or gives it back.
func (w *World) Full(zone string, on bool) {
	w.luck("zone "+zone+" is full, or not any more", nil, func() { w.full[zone] = on })
}

// Room gives the scheduler room in every zone.
func (w *World) Room() { w.luck("there is room everywhere", nil, func() { clear(w.full) }) }

// Lose kills mons without regard to the quorum.
func (w *World) Lose(names ...string) {
	w.luck("mons die, and the quorum with them", nil, func() {
		for _, name := range names {
			w.down[name] = true
		}
	})
}

// Class has a storage class make no volumes in a zone, or all of them make volumes again.
func (w *World) Class(which int, dead bool) {
	w.luck("a storage class is dead, or not any more", nil, func() {
		if !dead {
			clear(w.deadClasses)
			return
		}
		w.deadClasses["disk/"+zones[which%w.opts.Zones]] = true
	})
}

// Away has the API server not answer.
func (w *World) Away(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell("the API server is away: %t", on)
	w.away = on
}

// Spec changes the CephMon.
func (w *World) Spec(what string, change func(*v1alpha1.CephMonSpec)) {
	w.luck("the spec: "+what, nil, func() {
		if w.cephMon == nil {
			return
		}
		change(&w.cephMon.Spec)
		w.cephMon.Generation++
		w.stamped(w.cephMon)
	})
}

// Claims has new mons have claims of a class, or with "" paths of their nodes.
func Claims(class string) func(*v1alpha1.CephMonSpec) {
	return func(s *v1alpha1.CephMonSpec) {
		if s.VolumeClaimTemplate = nil; class == "" {
			return
		}
		s.VolumeClaimTemplate = &v1alpha1.MonVolumeClaimTemplate{}
		s.VolumeClaimTemplate.Spec.StorageClassName = &class
		s.VolumeClaimTemplate.Spec.Resources.Requests = corev1.ResourceList{
			corev1.ResourceStorage: resource.MustParse("10Gi"),
		}
	}
}

// InZones has mons run in some zones only; none: anywhere.
func InZones(names ...string) func(*v1alpha1.CephMonSpec) {
	return func(s *v1alpha1.CephMonSpec) {
		s.Zones = nil
		for _, name := range names {
			s.Zones = append(s.Zones, v1alpha1.MonZone{Name: name})
		}
	}
}

// DeleteCephMon deletes it. All mons stay.
func (w *World) DeleteCephMon() {
	w.luck("the CephMon is deleted", nil, func() { w.cephMon = nil })
}

// OneLess notes that a person has allowed that a mon leaves before its successor joins.
func (w *World) OneLess() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alone = true
}

// Rook has a CephCluster look after the mons, or not any more.
func (w *World) Rook(on bool) {
	w.luck("a CephCluster is there, or not any more", nil, func() { w.rook = on })
}

// Forever is a healthTimeout that no spec may have.
var Forever = metav1.Duration{Duration: 1000 * time.Hour}

// Names are the mons of the monmap.
func (w *World) Names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.names()
}

// Alive tells whether a mon of the monmap lives.
func (w *World) Alive(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.alive(name)
}

// Acts are the changes that were carried out, without what is only told.
func (w *World) Acts() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.acts), func(op string) bool { return op == "report status" })
}

// CephMon is what there is of it; nil: it is deleted.
func (w *World) CephMon() *v1alpha1.CephMon {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cephMon.DeepCopy()
}
