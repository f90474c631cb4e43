package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
)

// This file is the CephOSD of a World, and what persons do to it. Its pods are bare: whoever deletes one has to make
// the next.

// CephOSDName is the name of a World's CephOSD, in the namespace of Key.
const CephOSDName = "osds"

// FirstImage is what all pods run in the beginning.
const FirstImage = "ceph:1"

// cephOSD is the CephOSD, and what is told of its rollout.
type cephOSD struct {
	cr      *unstructured.Unstructured // nil: none
	shelved *unstructured.Unstructured // what its owner would create anew, while there is none
	edits   edits
	crashes map[string]bool           // images in which an OSD does not come up
	made    int                       // pods
	left    map[string]map[string]any // OSDs that a person took out of the spec, by name, and their devices there
	batches batches

	// done is the progress that was last reported, by template, storage and number of OSDs. It may go back by one for each
	// OSD that somebody else than lockkeeper has disturbed since, once.
	done       map[string]int
	disturbeds map[int]time.Time // OSDs, when last
}

func (w *World) initCephOSD() {
	w.initVersions()
	w.crashes, w.done, w.left = map[string]bool{}, map[string]int{}, map[string]map[string]any{}
	w.disturbeds, w.edits.devices = map[int]time.Time{}, map[int64]int{}
	w.batches = batches{begun: map[string]bool{}, last: map[string]time.Time{}, seen: map[string]bool{}}
	if w.opts.CephOSD == nil {
		return
	}
	spec := maps.Clone(w.opts.CephOSD)
	var hosts, osds []any
	for i := range w.opts.NodesPerZone * len(Zones) {
		hosts = append(hosts, "node-"+string(rune('a'+i)))
	}
	for i := range w.opts.OSDsPerNode {
		devices := map[string]any{"data": device(i)}
		if w.opts.DBs {
			devices["db"] = partition(i)
		}
		osds = append(osds, devices)
	}
	spec["deletionPolicy"] = string(v1alpha1.DeleteOSDs) // with an owner kubectl drains them as it drains any pod
	spec["storage"] = []any{map[string]any{"hosts": hosts, "osds": osds}}
	spec["podTemplate"] = map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "rook-ceph-osd"}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "osd", "image": FirstImage}}},
	}
	w.cr = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.Kind, "spec": spec,
		"metadata": map[string]any{
			"namespace": Key.Namespace, "name": CephOSDName, "uid": "cephosd", "generation": int64(1),
			"resourceVersion": "1",
		},
	}}
}

func device(i int) string    { return "/dev/vd" + string(rune('b'+i)) }
func partition(i int) string { return fmt.Sprintf("/dev/nvme0n1p%d", i+1) }

func (w *World) nextDevice(n *node) string {
	return device(len(slices.DeleteFunc(slices.Clone(w.osds), func(o *osd) bool { return o.host != n.name })))
}

// set is the CephOSD as lockkeeper reads it.
func (w *World) set() podspec.Set {
	s, err := podspec.Read(w.cr.DeepCopy().Object)
	if err != nil {
		panic(fmt.Sprintf("the simulated CephOSD: %v", err))
	}
	return s
}

// adopt makes a workload's pod one of the CephOSD's, as the original operator would have left it: with a name that its
// successor will not have, so that nothing but care keeps the two apart.
func (w *World) adopt(d *workload) {
	d.bare, d.replicas = true, 0
	o, p := w.osdOf(d), w.podOf(d)
	id := o.id
	devices := podspec.OSD{Host: o.host, Data: o.device}
	if w.opts.DBs {
		devices.DB = partition(int(o.device[len(o.device)-1] - 'b'))
	}
	p.made = w.set().Render(devices,
		podspec.Knowledge{ID: &id, FailureDomains: map[string]string{"host": o.host, "zone": o.zone}})
	p.name = fmt.Sprintf("osd-%s-%s-%05d", o.host, o.device[strings.LastIndex(o.device, "/")+1:], id)
	o.pod = p.name
	p.made.Name, p.made.UID = p.name, types.UID(p.name)
	p.made.CreationTimestamp = metav1.NewTime(w.started.Add(-time.Hour))
	p.made.Annotations[podspec.StateAnnotation] = string(podspec.UpToDate)
	p.devices, p.theirs = devicesOf(p.made), map[string]bool{}
	for _, said := range []map[string]string{p.made.Annotations, p.made.Labels} {
		for key := range said {
			p.theirs[key] = true
		}
	}
}

// create makes a pod that somebody asks for.
func (w *World) create(made *corev1.Pod, ours bool) (*pod, error) {
	host, data := made.Annotations[podspec.HostAnnotation], made.Annotations[podspec.DataAnnotation]
	i := slices.IndexFunc(w.osds, func(o *osd) bool { return o.host == host && o.device == data })
	if i < 0 {
		return nil, fmt.Errorf("the simulated API server makes pods of its OSDs alone, not of %s:%s", host, data)
	}
	if ours {
		w.judgeVersion(w.osds[i], made.Spec.Containers[0].Image)
	}
	w.made++
	made = made.DeepCopy()
	made.UID, made.CreationTimestamp = types.UID(fmt.Sprintf("%s-%d", made.Name, w.made)), now()
	p := &pod{
		name: made.Name, of: w.workload("osd", strconv.Itoa(i)), node: host, state: "Pending", made: made,
		devices: devicesOf(made), since: time.Now(), ours: ours, theirs: map[string]bool{},
	}
	w.tell("pod %s is made: %s in %s", p.name, p.of.daemon(), p.image())
	w.pods = append(w.pods, p)
	w.kubeChanged()
	w.schedule()
	return p, nil
}

// image is what a pod runs.
func (p *pod) image() string {
	if p.made == nil {
		return p.has
	}
	return p.made.Spec.Containers[0].Image
}

// EditCephOSD is a person who changes the CephOSD's spec.
func (w *World) EditCephOSD(what string, edit func(spec map[string]any)) {
	w.happens(func() {
		w.tell("a person changes the CephOSD: %s", what)
		w.editCephOSD(edit)
	})
}

// editCephOSD changes the CephOSD, or what will be created anew.
func (w *World) editCephOSD(edit func(spec map[string]any)) {
	if w.cr == nil {
		spec, _ := w.shelved.Object["spec"].(map[string]any)
		edit(spec)
		return
	}
	next := w.cr.DeepCopy()
	spec, _ := next.Object["spec"].(map[string]any)
	before, hash := w.set().Spec.DeepCopy(), w.set().Hash
	if edit(spec); equality.Semantic.DeepEqual(spec, w.cr.Object["spec"]) {
		return
	}
	next.SetGeneration(next.GetGeneration() + 1)
	w.putCephOSD(next)
	w.edits.note(before, &w.set().Spec, w.cr.GetGeneration())
	if !equality.Semantic.DeepEqual(before.Storage, w.set().Spec.Storage) {
		w.excused()
	}
	if w.set().Hash != hash {
		w.batches.seen[hash], w.batches.canary, w.batches.first = true, "", time.Time{}
	}
	w.tellWatcher()
}

// putCephOSD stores it as it comes over the wire.
func (w *World) putCephOSD(next *unstructured.Unstructured) {
	w.version++
	next.SetResourceVersion(strconv.Itoa(w.version))
	text, err := next.MarshalJSON()
	if err == nil {
		w.cr = &unstructured.Unstructured{}
		err = w.cr.UnmarshalJSON(text)
	}
	if err != nil {
		panic(fmt.Sprintf("the simulated CephOSD: %v", err))
	}
}

// SetImage is a person who changes the image in the template.
func (w *World) SetImage(image string) {
	w.EditCephOSD("image "+image, func(spec map[string]any) {
		_ = unstructured.SetNestedSlice(spec, []any{map[string]any{"name": "osd", "image": image}}, "podTemplate",
			"spec", "containers")
	})
}

// Crashes makes OSDs that run in an image crash, or mends what makes them crash.
func (w *World) Crashes(image string, crash bool) {
	w.happens(func() {
		w.tell("OSDs in %s crash: %t", image, crash)
		w.crashes[image] = crash
	})
}

// DeletePod is somebody who deletes an OSD's pod.
func (w *World) DeletePod(daemon string) {
	w.happens(func() {
		if p := w.podOf(w.find(daemon)); p != nil {
			w.tell("somebody deletes pod %s", p.name)
			w.crashed = time.Now()
			w.remove(p)
		}
	})
}

// Annotate is a person who changes an annotation of an OSD's pod; "" removes it.
func (w *World) Annotate(daemon, annotation, value string) {
	w.happens(func() {
		p := w.podOf(w.find(daemon))
		if p == nil || p.made == nil {
			return
		}
		w.tell("a person annotates %s: %s=%s", p.name, annotation, value)
		if p.made.Annotations[annotation] = value; value == "" {
			delete(p.made.Annotations, annotation)
		}
		p.theirs[annotation] = true
		w.excused()
		w.disturbed(p)
		w.kubeChanged()
	})
}

// CephOSD is the CephOSD with its status.
func (w *World) CephOSD() (cr v1alpha1.CephOSD) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cr != nil {
		cr = *w.typedCephOSD()
	}
	return cr
}

func (w *World) typedCephOSD() *v1alpha1.CephOSD {
	cr := &v1alpha1.CephOSD{}
	text, err := w.cr.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, cr)
	}
	if err != nil {
		panic(fmt.Sprintf("the simulated CephOSD: %v", err))
	}
	return cr
}

// Images counts what the OSDs that serve run in.
func (w *World) Images() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]int{}
	for _, p := range w.pods {
		if p.of.kind == "osd" && p.runs && !p.leaving() {
			out[p.image()]++
		}
	}
	return out
}

// Image is what an OSD's pod runs; "" if there is none.
func (w *World) Image(daemon string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.podOf(w.find(daemon)); p != nil {
		return p.image()
	}
	return ""
}

// NooutOSDs are the OSDs on which lockkeeper has noout set.
func (w *World) NooutOSDs() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.osds {
		if w.noout[o.name()] == byUs {
			out = append(out, o.name())
		}
	}
	return out
}

// osdMetadata is what the OSDs said of themselves when they last started.
func (w *World) osdMetadata() []ceph.OSDMetadata {
	out := make([]ceph.OSDMetadata, 0, len(w.osds))
	for _, o := range w.osds {
		out = append(out, ceph.OSDMetadata{
			ID: o.id, Hostname: o.host, PodName: o.pod,
			Data: fmt.Sprintf("/var/lib/ceph/osd/ceph-%d", o.id), Version: o.version.String(),
		})
	}
	return out
}

// safeToDestroy answers from what the manager believes, as okToStop does.
func (w *World) safeToDestroy(ids []string) (any, error) {
	answer := map[string][]int{"safe_to_destroy": {}, "active": {}, "missing_stats": {}, "stored_pgs": {}}
	for _, s := range ids {
		id, err := strconv.Atoi(s)
		if err != nil {
			return nil, err
		}
		in := "safe_to_destroy"
		for _, p := range w.pgs {
			switch {
			case slices.Contains(p.acting, id):
				in = "active"
			case p.whole[id] && in != "active":
				in = "stored_pgs"
			}
		}
		answer[in] = append(answer[in], id)
	}
	return answer, nil
}
