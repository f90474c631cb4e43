package mons

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// This file is the controllers, the scheduler and the kubelets.

// pod is one pod of a Deployment.
type pod struct {
	*corev1.Pod
	of    string    // its Deployment
	owner types.UID // and which one of that name
	spec  int64     // the generation of its template
	due   time.Time // when it runs, or when it is gone

	// What runs in the pod of a mon.
	joins time.Time // when its process looks for the others; zero: it has not begun
	ready time.Time // when it is in quorum; zero: it is not in the monmap
	shy   bool      // it never comes into quorum
	ghost bool      // Kubernetes has forgotten it with its node, and it runs on
}

// mon is whose pod it is; "" for a canary.
func (p *pod) mon() string {
	if strings.HasSuffix(p.of, "-canary") {
		return ""
	}
	return p.Labels["ceph_daemon_id"]
}

// pass brings everything to where it is by now.
func (w *World) pass() {
	w.observeNodes()
	for _, name := range sorted(w.pods) {
		w.passPod(w.pods[name])
	}
	for _, name := range sorted(w.deployments) {
		if d := w.deployments[name]; !w.hasPod(d) {
			w.addPod(d)
		}
	}
	for _, name := range sorted(w.claims) { // what is deleted stays for as long as a pod uses it
		if c := w.claims[name]; c.DeletionTimestamp != nil && !w.used(name) {
			delete(w.claims, name)
			delete(w.volumes, c.UID)
		}
	}
	w.observe()
}

// hasPod: a Deployment has a pod, or waits for the last one. For one on a node that is not heard of only a change of
// the template waits.
func (w *World) hasPod(d *appsv1.Deployment) bool {
	for _, p := range w.pods {
		old := p.owner == d.UID && p.spec != d.Generation
		stays := p.ghost || p.DeletionTimestamp != nil && w.silent(p.Spec.NodeName) && !old
		if p.of == d.Name && !stays {
			return true
		}
	}
	return false
}

func (w *World) used(claim string) bool {
	for _, p := range w.pods {
		if claimOf(&p.Spec) == claim {
			return true
		}
	}
	return false
}

func claimOf(spec *corev1.PodSpec) string {
	for _, v := range spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			return v.PersistentVolumeClaim.ClaimName
		}
	}
	return ""
}

func (w *World) addPod(d *appsv1.Deployment) {
	w.version++
	p := &pod{
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: Ref.Namespace, Name: fmt.Sprintf("%s-%d", d.Name, w.version), Labels: d.Spec.Template.Labels,
				Annotations: d.Spec.Template.Annotations, CreationTimestamp: metav1.Now(),
			},
			Spec:   *d.Spec.Template.Spec.DeepCopy(),
			Status: corev1.PodStatus{Phase: corev1.PodPending},
		},
		of: d.Name, owner: d.UID, spec: d.Generation,
	}
	w.pods[p.Name] = p
	w.wake(20 * time.Millisecond)
}

func (w *World) passPod(p *pod) {
	d, node, now := w.deployments[p.of], w.nodes[p.Spec.NodeName], time.Now()
	goes := d == nil || d.UID != p.owner || d.Generation != p.spec
	switch _, there := w.member(p.mon()); {
	case p.ghost && there: // nobody is there who would end it
	case p.Spec.NodeName != "" && node == nil:
		w.dropPod(p)
	case w.silent(p.Spec.NodeName):
		w.passUnheard(p, goes)
	case p.DeletionTimestamp != nil:
		switch { // until it is gone, what runs in it goes on
		case p.Spec.NodeName == "" || !now.Before(p.due):
			w.dropPod(p)
		case p.Status.Phase == corev1.PodRunning && p.mon() != "":
			w.process(p)
		}
	case goes:
		p.DeletionTimestamp = &metav1.Time{Time: now}
		grace := w.between(50*time.Millisecond, 5*time.Second)
		p.due = now.Add(grace)
		w.wake(grace)
	case p.Spec.NodeName == "":
		w.schedule(p)
	case p.Status.Phase == corev1.PodPending && w.heldElsewhere(p):
	case p.Status.Phase == corev1.PodPending && !now.Before(p.due):
		p.Status.Phase = corev1.PodRunning
		fallthrough
	default:
		if p.Status.Phase == corev1.PodRunning && p.mon() != "" {
			w.process(p)
		}
	}
}

// dropPod takes away a pod that has ended. Others may have waited for its place.
func (w *World) dropPod(p *pod) {
	delete(w.pods, p.Name)
	w.wake(20 * time.Millisecond)
}

// schedule finds a node for a pod, and has its volume made there.
func (w *World) schedule(p *pod) {
	claim := w.claims[claimOf(&p.Spec)]
	if name := claimOf(&p.Spec); name != "" && (claim == nil || claim.DeletionTimestamp != nil) {
		return
	}
	names := sorted(w.nodes)
	first := 0
	if w.opts.Draw != nil {
		first = w.opts.Draw(len(names))
	}
	for i := range names {
		n := w.nodes[names[(first+i)%len(names)]]
		if !w.fits(p, n) || claim != nil && !w.binds(claim, n) {
			continue
		}
		p.Spec.NodeName = n.Name
		starts := w.between(100*time.Millisecond, 3*time.Second)
		p.due = time.Now().Add(starts)
		w.wake(starts)
		return
	}
}

// onNodes is the class whose volumes are disks of nodes. Those of others are of a zone.
const onNodes = "ssd"

// binds tells whether a claim has its volume in the zone of a node, or makes one there.
func (w *World) binds(c *corev1.PersistentVolumeClaim, n *corev1.Node) bool {
	zone := n.Labels[corev1.LabelTopologyZone]
	place := zone
	if c.Spec.StorageClassName != nil && *c.Spec.StorageClassName == onNodes {
		place = n.Name
	}
	if c.Status.Phase == corev1.ClaimBound {
		return w.volumes[c.UID] == place
	}
	class := "disk" // the default
	if c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	if w.classes[class] == nil || w.deadClasses[class+"/"+zone] {
		return false
	}
	c.Status.Phase = corev1.ClaimBound
	w.volumes[c.UID], c.Spec.VolumeName = place, "pv-"+string(c.UID)
	return true
}

func ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (w *World) fits(p *pod, n *corev1.Node) bool {
	match, err := nodeaffinity.GetRequiredNodeAffinity(p.Pod).Match(n)
	if err != nil || !match || n.Spec.Unschedulable || !ready(n) ||
		w.full[n.Labels[corev1.LabelTopologyZone]] {
		return false
	}
	for _, other := range w.pods {
		if other.Spec.NodeName == n.Name && (repels(p.Pod, other.Pod) || repels(other.Pod, p.Pod)) {
			return false
		}
	}
	return true
}

func repels(p, other *corev1.Pod) bool {
	if p.Spec.Affinity == nil || p.Spec.Affinity.PodAntiAffinity == nil {
		return false
	}
	for _, term := range p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		if err != nil || selector.Matches(labels.Set(other.Labels)) {
			return true
		}
	}
	return false
}
