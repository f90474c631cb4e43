package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is Kubernetes: nodes, Deployments of one pod each, their controller, the scheduler and the kubelets.

type node struct {
	name, zone, uid       string
	boot                  int
	ready, cordoned, gone bool
	tainted               string
	cordonedBy            owner
	cordonedAt            time.Time
	lookedAt              time.Time // by lockkeeper
	atOnce                bool      // cordoned right after that look: both did so, and there is but one mark
	rebooting             bool
	cut                   bool // from the control plane: what runs there goes on
}

func (n *node) schedulable() bool {
	return n != nil && !n.gone && !n.cordoned && n.tainted == "" && n.ready
}

func (n *node) object() corev1.Node {
	ready := corev1.ConditionFalse
	if n.ready {
		ready = corev1.ConditionTrue
	}
	out := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.name, UID: types.UID(n.uid),
			Labels: map[string]string{corev1.LabelHostname: n.name, corev1.LabelTopologyZone: n.zone},
		},
		Spec: corev1.NodeSpec{Unschedulable: n.cordoned},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
			NodeInfo:   corev1.NodeSystemInfo{BootID: fmt.Sprintf("boot-%s-%d", n.name, n.boot)},
		},
	}
	if n.cordoned {
		out.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: string(n.cordonedBy), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:unschedulable":{}}}`)},
		}
	}
	if n.tainted != "" {
		out.Spec.Taints = []corev1.Taint{{Key: n.tainted, Effect: corev1.TaintEffectNoSchedule}}
	}
	return out
}

// workload is a Deployment of one daemon.
type workload struct {
	namespace string            // "": that of Key
	kind, id  string            // "osd" "3", "mon" "a", "mgr" "a"
	pinned    string            // to this node; "": may run anywhere
	selector  map[string]string // what its pods say of that
	zone      string            // of an OSD
	replicas  int
	labels    map[string]string
	bare      bool // an OSD without a Deployment: its pods are a CephOSD's, and nobody but lockkeeper makes them

	// Of a Deployment: its annotations, those of its pods and their image, and how often those changed.
	annotations, template map[string]string
	image                 string
	generation, observed  int64
}

func (d *workload) name() string   { return "rook-ceph-" + d.kind + "-" + d.id }
func (d *workload) daemon() string { return d.kind + "." + d.id }

// label gives a workload and its pods Rook's labels.
func (d *workload) label() {
	d.labels = map[string]string{
		"app": "rook-ceph-" + d.kind, "ceph_daemon_id": d.id, "ceph_daemon_type": d.kind,
		d.kind: d.id,
	}
	if d.kind == "osd" {
		d.labels["ceph-osd-id"], d.labels["topology-location-zone"], d.labels["topology-location-host"] = d.id, d.zone,
			d.pinned
	}
}

func (d *workload) nodeSelector() map[string]string {
	if d.pinned != "" && d.selector == nil {
		d.selector = map[string]string{corev1.LabelHostname: d.pinned}
	}
	return d.selector
}

func (d *workload) object() appsv1.Deployment {
	replicas := int32(d.replicas) //nolint:gosec // 0 or 1
	return appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cmp.Or(d.namespace, Key.Namespace), Name: d.name(), UID: types.UID(d.name()), Labels: d.labels,
			Annotations: maps.Clone(d.annotations), Generation: d.generation,
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: d.labels, Annotations: maps.Clone(d.template)},
				Spec: corev1.PodSpec{
					NodeSelector: d.nodeSelector(),
					Containers:   []corev1.Container{{Name: d.kind, Image: d.image}},
				},
			},
		},
	}
}

// pod is one pod of a workload.
type pod struct {
	name  string
	of    *workload
	node  string // "": none yet
	bound bool   // to the node
	state storage.PodState
	ready bool // what a terminating one was
	// failing is since when its readiness probe fails although its daemon serves; zero: it does not.
	failing time.Time
	unheard bool      // it is to end, and its kubelet has not heard of it
	runs    bool      // its process
	started time.Time // when it was last
	began   bool      // its container was started: until the pod is gone, it may be again at any moment

	writes int // to the object: what is written, taken back and written again is another version each time
	// the label that lockkeeper sets; "": none. Of one with a controller, whose other labels are its workload's
	mark     string
	marked   map[string]string // the labels with that mark
	restarts int               // of its container

	// by whom no controller stands behind; nil: by that of its Deployment. Whoever changes it puts another one here
	made     *corev1.Pod
	read     *corev1.Pod // the made that said was taken from
	said     string      // all of it that changes
	revision int64       // of its Deployment's template
	has      string      // the image of that

	// Of one without a controller: what its daemon opens on its node, when it was made, whether by lockkeeper, and the
	// annotations and labels that somebody else wrote last.
	devices []string
	since   time.Time
	ours    bool
	theirs  map[string]bool
}

// labels are those that the pod has.
func (p *pod) labels() map[string]string {
	switch {
	case p.made != nil:
		return p.made.Labels
	case p.mark == "":
		return p.of.labels
	}
	if p.marked[storageview.MarkLabel] != p.mark {
		p.marked = maps.Clone(p.of.labels)
		p.marked[storageview.MarkLabel] = p.mark
	}
	return p.marked
}

// version stands for all of a pod that changes. Its spec never does.
func (p *pod) version() string {
	v := p.name + " " + string(p.state) + " " + strconv.FormatBool(p.bound) + " " + strconv.FormatBool(p.ready) + " " +
		strconv.Itoa(p.restarts) + " " + p.mark + " " + strconv.Itoa(p.writes)
	if p.made != p.read {
		p.said, p.read = fmt.Sprint(p.made.UID, p.made.Labels, p.made.Annotations, p.made.OwnerReferences), p.made
	}
	return v + p.said
}

func (p *pod) boundTo() string {
	if p.bound {
		return p.node
	}
	return ""
}

func (p *pod) leaving() bool { return p.state == storage.PodTerminating }

// object is the pod as the API server hands it out.
func (p *pod) object() corev1.Pod {
	out := p.shared()
	return *out.DeepCopy()
}

// shared is the pod for those who only read.
func (p *pod) shared() corev1.Pod {
	if p.made != nil {
		out := *p.made
		out.Spec.NodeName = p.boundTo()
		p.describe(&out)
		return out
	}
	yes := true
	out := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cmp.Or(p.of.namespace, Key.Namespace), Name: p.name, UID: types.UID(p.name), Labels: p.labels(),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: p.of.name(),
				Controller: &yes,
			}},
		},
		Spec: corev1.PodSpec{NodeName: p.boundTo(), NodeSelector: p.of.nodeSelector()},
	}
	p.describe(&out)
	return out
}

// container is the name of the daemon's.
func (p *pod) container() string {
	if p.made != nil && len(p.made.Spec.Containers) > 0 {
		return p.made.Spec.Containers[0].Name
	}
	return p.of.kind
}

// describe fills in what the kubelet and the API server say of a pod.
func (p *pod) describe(out *corev1.Pod) {
	out.ResourceVersion = p.version()
	out.Status.Phase = corev1.PodRunning
	container := corev1.ContainerStatus{Name: p.container(), RestartCount: int32(p.restarts)} //nolint:gosec // few
	if p.runs {
		container.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(p.started)}
	}
	out.Status.ContainerStatuses = []corev1.ContainerStatus{container}
	ready := p.state == storage.PodReady
	switch p.state {
	case storage.PodNone, storage.PodReady, storage.PodNotReady:
	case storage.PodPending:
		out.Status.Phase = corev1.PodPending
	case storage.PodTerminating:
		at := now()
		out.DeletionTimestamp = &at
		ready = p.ready
	}
	if ready {
		out.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
}

// podOf is the pod of a daemon that is not on its way out; of several, that in which it runs.
func (w *World) podOf(d *workload) (first *pod) {
	for _, p := range w.pods {
		switch {
		case p.of != d || p.leaving():
		case p.runs:
			return p
		case first == nil:
			first = p
		}
	}
	return first
}

func (w *World) workload(kind, id string) *workload {
	for _, d := range w.workloads {
		if d.kind == kind && d.id == id {
			return d
		}
	}
	return nil
}

// remove ends a pod, gracefully, and has its Deployment make another one.
func (w *World) remove(p *pod) {
	if p.leaving() {
		return
	}
	p.state, p.ready = storage.PodTerminating, p.state == storage.PodReady
	w.disturbed(p)
	w.later(podReplaced, func() { w.replace(p.of) })
	grace := podGrace
	if p.made != nil {
		grace = bareGrace
	}
	if p.of.kind == "osd" {
		grace = cmp.Or(w.opts.Grace, grace)
	}
	if !p.bound {
		grace = 0
	}
	w.later(grace, func() {
		if n := w.nodes[p.node]; p.bound && n != nil && n.cut && !n.gone {
			p.unheard = true
			return
		}
		w.endPod(p)
	})
	w.kubeChanged()
}

// endPod is the end of a pod that is leaving.
func (w *World) endPod(p *pod) {
	ran := p.runs
	p.runs, p.unheard = false, false
	w.pods = slices.DeleteFunc(w.pods, func(x *pod) bool { return x == p })
	if ran {
		w.stopDaemon(p.of)
	}
	w.kubeChanged()
	w.schedule()
}

// replace makes a pod for a workload that should have one and has none.
func (w *World) replace(d *workload) {
	if d.replicas == 0 || w.podOf(d) != nil {
		return
	}
	p := &pod{
		name: fmt.Sprintf("%s-%d", d.name(), time.Since(w.started).Milliseconds()), of: d, node: d.pinned,
		state: storage.PodPending, revision: d.generation, has: d.image,
	}
	w.pods = append(w.pods, p)
	w.kubeChanged()
	w.schedule()
}

// schedule binds the pods that wait and can.
func (w *World) schedule() {
	for _, p := range w.pods {
		if p.bound || p.state != storage.PodPending {
			continue
		}
		if p.made != nil { // it tolerates every taint, as an OSD's should, and nobody looks who else has its device
			if n := w.nodes[p.node]; n != nil && !n.gone {
				p.bound = true
				w.later(podStarts, func() { w.run(p) })
			}
			continue
		}
		if slices.ContainsFunc(w.pods, func(x *pod) bool { return x.of == p.of && x.leaving() }) {
			continue
		}
		node := p.of.pinned
		if node == "" {
			for _, name := range w.names {
				if w.nodes[name].schedulable() {
					node = name
				}
			}
		}
		if !w.nodes[node].schedulable() {
			continue
		}
		p.node, p.bound = node, true
		w.later(podStarts, func() { w.run(p) })
	}
}

// run starts a pod's process. It is ready before its daemon serves, as without a readiness probe.
func (w *World) run(p *pod) {
	if p.leaving() || !p.bound || !slices.Contains(w.pods, p) {
		return
	}
	n := w.nodes[p.node]
	if n != nil && n.cut && !n.gone && !n.rebooting && p.began && !p.runs {
		w.runUnseen(p)
		return
	}
	if n == nil || n.gone || !n.ready {
		return
	}
	if p.began && !p.runs {
		p.restarts++
	}
	p.began, p.started = true, time.Now()
	w.judgeStart(p)
	if w.crashes[p.image()] || w.locked(p) {
		p.state = storage.PodNotReady
		w.later(backOff, func() { w.run(p) })
		w.kubeChanged()
		return
	}
	p.state = storage.PodReady
	if p.runs = w.startDaemon(p.of); !p.runs {
		p.state = storage.PodNotReady
	} else if p.of.kind == "osd" {
		o := w.osdOf(p.of)
		o.pod, o.starting = p.name, versionOf(p.image())
		w.ran(p)
	}
	w.kubeChanged()
}

// Unready has the readiness probe of a daemon's pod fail for a while. The daemon serves all the same.
func (w *World) Unready(daemon string, lasting time.Duration) {
	w.happens(func() {
		p := w.podOf(w.find(daemon))
		if p == nil || !p.runs || p.state != storage.PodReady {
			return
		}
		w.tell("the pod of %s is not ready, and serves", daemon)
		p.state, p.failing = storage.PodNotReady, time.Now()
		w.later(lasting, func() {
			if n := w.nodes[p.node]; n != nil && n.cut {
				return
			}
			if p.failing = (time.Time{}); p.runs && p.state == storage.PodNotReady {
				p.state = storage.PodReady
				w.kubeChanged()
			}
		})
		w.kubeChanged()
	})
}

// crashOn stops what runs in a pod, without anybody having asked.
func (w *World) crashOn(p *pod) {
	if p.leaving() || !p.bound || p.state == storage.PodPending {
		return
	}
	ran := p.runs
	p.state, p.runs = storage.PodNotReady, false
	w.crashed = time.Now()
	if ran {
		w.stopDaemon(p.of)
	}
}

func (w *World) stopDaemon(d *workload) {
	switch d.kind {
	case "osd":
		w.stopOSD(w.osdOf(d))
	case "mon":
		w.stopMon(w.monOf(d))
	case "mgr":
		w.stopManager()
	}
}

// startDaemon starts what runs in a pod, and tells whether it runs.
func (w *World) startDaemon(d *workload) bool {
	switch d.kind {
	case "osd":
		return w.startOSD(w.osdOf(d))
	case "mon":
		w.startMon(w.monOf(d))
	case "mgr":
		w.startManager()
	}
	return true
}

func (w *World) osdOf(d *workload) *osd {
	id, _ := strconv.Atoi(d.id)
	return w.osds[id]
}

func (w *World) cordon(name string, on bool, who owner) {
	n := w.nodes[name]
	if n == nil || n.gone {
		return
	}
	if n.cordoned == on {
		return
	}
	w.tell("%s %s %s", who, map[bool]string{true: "cordons", false: "uncordons"}[on], name)
	if who == byUs && !on && n.cordonedBy != byUs && !n.atOnce {
		w.violate("I9: lockkeeper uncordons %s, which %s had cordoned", name, n.cordonedBy)
	}
	n.cordonedAt = time.Now()
	n.cordoned, n.cordonedBy, n.atOnce = on, who, time.Since(n.lookedAt) < w.opts.Reaction
	w.kubeChanged()
	w.schedule()
}
