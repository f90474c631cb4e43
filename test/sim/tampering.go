package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what persons do to a CephOSD and its pods beside changing the template.

// EditStorage is a person who changes which OSDs there are: edit gets those of each host, and what it leaves of them
// stays.
func (w *World) EditStorage(what string, edit func(byHost map[string][]map[string]any)) {
	w.EditCephOSD(what, func(spec map[string]any) { editStorage(spec, edit) })
}

func editStorage(spec map[string]any, edit func(byHost map[string][]map[string]any)) {
	byHost := map[string][]map[string]any{}
	elements, _ := spec["storage"].([]any)
	for _, e := range elements {
		element, _ := e.(map[string]any)
		hosts, _ := element["hosts"].([]any)
		osds, _ := element["osds"].([]any)
		for _, h := range hosts {
			host, _ := h.(string)
			for _, o := range osds {
				devices, _ := o.(map[string]any)
				own := map[string]any{}
				maps.Copy(own, devices)
				byHost[host] = append(byHost[host], own)
			}
		}
	}
	edit(byHost)
	var out []any
	for _, host := range slices.Sorted(maps.Keys(byHost)) {
		var osds []any
		for _, devices := range byHost[host] {
			osds = append(osds, devices)
		}
		if len(osds) > 0 {
			out = append(out, map[string]any{"hosts": []any{host}, "osds": osds})
		}
	}
	spec["storage"] = out
}

// MoveDB is a person who gives an OSD another DB: that of the other OSD of its host, which gets its own, or one that
// nobody has.
func (w *World) MoveDB(daemon string) {
	o := w.osdNamed(daemon)
	w.EditStorage("another DB for "+daemon, func(byHost map[string][]map[string]any) {
		osds := byHost[o.host]
		i := slices.IndexFunc(osds, func(devices map[string]any) bool { return devices["data"] == o.device })
		switch {
		case i < 0:
		case len(osds) > 1:
			j := (i + 1) % len(osds)
			osds[i]["db"], osds[j]["db"] = osds[j]["db"], osds[i]["db"]
		case osds[i]["db"] == partition(0):
			osds[i]["db"] = partition(len(w.osds))
		default:
			osds[i]["db"] = partition(0)
		}
	})
}

// Leave is a person who takes an OSD out of the spec, or puts it back as it was, but with another DB if its own was
// given away.
func (w *World) Leave(daemon string, leave bool) {
	o := w.osdNamed(daemon)
	devices, has := w.left[daemon]
	if has == leave {
		return
	}
	w.EditStorage(fmt.Sprintf("%s is in the spec: %t", daemon, !leave), func(byHost map[string][]map[string]any) {
		if !leave {
			taken := func(db any) bool {
				return slices.ContainsFunc(byHost[o.host], func(other map[string]any) bool { return other["db"] == db })
			}
			for n := 0; devices["db"] != nil && taken(devices["db"]); n++ {
				devices["db"] = partition(n)
			}
			byHost[o.host] = append(byHost[o.host], devices)
			delete(w.left, daemon)
			return
		}
		byHost[o.host] = slices.DeleteFunc(byHost[o.host], func(devices map[string]any) bool {
			if devices["data"] != o.device {
				return false
			}
			w.left[daemon] = devices
			return true
		})
	})
}

// Left are the OSDs that a person took out of the spec.
func (w *World) Left() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.left))
}

// DeleteCephOSD is a person who deletes the CephOSD and leaves its pods: `kubectl delete --cascade=orphan`.
func (w *World) DeleteCephOSD() {
	w.happens(func() {
		if w.cr == nil {
			return
		}
		w.tell("a person deletes the CephOSD")
		w.shelved, w.cr, w.edits.at = w.cr, nil, time.Now()
		for _, p := range w.pods {
			if p.made != nil {
				p.made = p.made.DeepCopy()
				p.made.OwnerReferences = nil
			}
		}
		w.kubeChanged()
	})
}

// RestoreCephOSD creates it anew, if it is gone.
func (w *World) RestoreCephOSD() {
	w.happens(func() {
		if w.cr != nil || w.shelved == nil {
			return
		}
		w.tell("a person creates the CephOSD")
		w.made++
		next := w.shelved
		next.SetGeneration(1)
		next.SetUID(types.UID(fmt.Sprintf("cephosd-%d", w.made)))
		delete(next.Object, "status")
		w.shelved, w.done = nil, map[string]int{}
		w.putCephOSD(next)
		w.edits.anew(&w.set().Spec)
		w.batches.seen[w.set().Hash] = true // nobody remembers what was said of its canary
		w.tellWatcher()
	})
}

// Duplicate is a person who copies an OSD's pod.
func (w *World) Duplicate(daemon string) {
	w.happens(func() {
		p := w.podOf(w.find(daemon))
		if p == nil || p.made == nil || p.devices == nil {
			return
		}
		made := p.made.DeepCopy()
		if made.Name += "-copy"; w.podNamed(made.Name) != nil {
			return
		}
		made.ResourceVersion = ""
		if x, err := w.create(made, false); err == nil {
			w.disturbed(x)
		}
	})
}

// foreignPod is the name of a pod of somebody else that has the owner label.
const foreignPod = "somebody-elses"

// ForeignPod is somebody who makes a pod with the owner label that is no OSD's, or takes it away. lockkeeper must not.
func (w *World) ForeignPod(exists bool) {
	w.happens(func() {
		p := w.podNamed(foreignPod)
		switch {
		case exists && p == nil:
			w.tell("somebody makes a pod with the owner label")
			p = &pod{
				name: foreignPod, of: &workload{kind: "stranger", id: "x", bare: true}, node: w.names[0], state: storage.PodPending,
				since: time.Now(), theirs: map[string]bool{},
				made: &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{
						Namespace: Key.Namespace, Name: foreignPod, UID: foreignPod,
						Labels: map[string]string{podspec.OwnerLabel: podspec.Owner(CephOSDName)},
					},
					Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}},
				},
			}
			w.pods = append(w.pods, p)
			w.kubeChanged()
			w.schedule()
		case !exists && p != nil:
			w.remove(p)
		}
	})
}

// Strays says which OSDs of the CephOSD do not have exactly one pod, but for one that leaves.
func (w *World) Strays() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.workloads {
		var names []string
		for _, p := range w.pods {
			if d.bare && p.of == d {
				names = append(names, p.name)
			}
		}
		if d.bare && len(names) != 1 {
			out = append(out, fmt.Sprintf("%s has the pods [%s]", d.daemon(), strings.Join(names, " ")))
		}
	}
	return out
}

// Outdated says which OSDs of the CephOSD do not run as its spec says, or are not there.
func (w *World) Outdated() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cr == nil {
		return nil
	}
	set := w.set()
	desired, _ := set.Desired()
	for _, o := range desired {
		i := slices.IndexFunc(w.osds, func(x *osd) bool { return x.host == o.Host && x.device == o.Data })
		d := w.workload("osd", fmt.Sprint(i))
		if p := w.podOf(d); p == nil {
			out = append(out, d.daemon()+" has no pod")
		} else if why := podspec.Differs(p.made, set.Render(o, podspec.Knowledge{})); why != "" {
			out = append(out, d.daemon()+": "+why)
		}
	}
	return out
}

func (w *World) osdNamed(daemon string) *osd {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.osdOf(w.find(daemon))
}

// persons tells whether a person made the pod, while the World was there.
func (p *pod) persons() bool { return p.made != nil && !p.ours && !p.since.IsZero() }

// devicesOf are what the daemon in a pod opens.
func devicesOf(made *corev1.Pod) (out []string) {
	for _, use := range []string{podspec.DataAnnotation, podspec.DBAnnotation, podspec.WALAnnotation} {
		if device := made.Annotations[use]; device != "" {
			out = append(out, device)
		}
	}
	return out
}

// opens are the devices that the daemon in a pod opens on its node.
func (w *World) opens(p *pod) []string {
	if p.of.kind == "osd" && p.made == nil {
		return []string{w.osdOf(p.of).device}
	}
	return p.devices
}

// shares tells which device of its node the daemons of two pods would both open; "" for none.
func (w *World) shares(p, x *pod) string {
	if x == p || x.node != p.node || !x.bound {
		return ""
	}
	for _, device := range w.opens(p) {
		if slices.Contains(w.opens(x), device) {
			return device
		}
	}
	return ""
}

// locked tells whether another daemon runs on a device that this one would open. An OSD locks its devices, on the same
// node.
func (w *World) locked(p *pod) bool {
	return slices.ContainsFunc(w.pods, func(x *pod) bool { return x.runs && w.shares(p, x) != "" })
}

// disturbed: somebody took a pod of the CephOSD, or changed what is said on it.
func (w *World) disturbed(p *pod) {
	if p.made != nil && p.of.kind == "osd" {
		w.disturbeds[w.osdOf(p.of).id] = time.Now()
	}
}

// wrote notes what lockkeeper writes on a pod.
func (w *World) wrote(p *pod, next *corev1.Pod) {
	for _, said := range [][2]map[string]string{{p.made.Annotations, next.Annotations}, {p.made.Labels, next.Labels}} {
		for key, value := range said[1] {
			if said[0][key] != value {
				delete(p.theirs, key)
			}
		}
	}
	p.made = next
}

// CopyMark is a person who copies the labels of one OSD's pod onto that of another, the mark with them.
func (w *World) CopyMark(from, to string) {
	w.Tell("a person copies the mark of %s to %s", from, to)
	w.happens(func() {
		source, p := w.podOf(w.find(from)), w.podOf(w.find(to))
		if source == nil || p == nil {
			return
		}
		mark := source.labels()[storageview.MarkLabel]
		if p.made == nil {
			p.mark, p.writes = mark, p.writes+1
		} else {
			p.made = p.made.DeepCopy()
			p.made.Labels[storageview.MarkLabel] = mark
		}
		w.kubeChanged()
	})
}
