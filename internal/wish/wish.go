// Package wish finds the storage pods that a controller wants gone: because it wants a newer one in its place, or
// fewer, or because the pod's owner is gone. Where deletions are guarded such a pod waits, and so does its controller.
//
// It is pure, and follows the controllers of Kubernetes: what it names is what they have been refused to delete, or
// will ask for next. It reads what is stored, and no event, so a restart of whoever looks loses nothing.
package wish

import (
	"cmp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
)

// Wish is one pod that is to go.
type Wish struct {
	Pod  string    `json:"pod"`
	UID  types.UID `json:"uid"`
	Node string    `json:"node,omitempty"` // "": nowhere
	// Owner is whose wish it is: "Deployment/rook-ceph-osd-3". Of a pod whose owner is gone it is what the pod calls it.
	Owner string `json:"owner"`
	// Newer: another pod is to take its place. Otherwise the daemon goes for good.
	Newer bool `json:"newer,omitempty"`
	// Orphan: the pod's owner is gone or being deleted, and the garbage collector wants the pod to follow. With Newer the
	// pod that takes its place is there already, and Owner is whose that one is.
	Orphan bool `json:"orphan,omitempty"`
	// Since is when the deletion was refused first, as the owner's status has it; zero where it has nothing of the kind.
	Since time.Time `json:"since,omitzero"`
}

// Objects are what wishes follow from: some pods of a namespace, and all of its workloads. They are only read.
type Objects struct {
	Pods         []corev1.Pod
	ReplicaSets  []appsv1.ReplicaSet
	Deployments  []appsv1.Deployment
	StatefulSets []appsv1.StatefulSet
	DaemonSets   []appsv1.DaemonSet
	// CephOSDs own pods without anything in between, and want none of them gone: UpdateOSDs replaces those. Unless
	// KnowsCephOSDs nobody has read them, so that nothing is known of a pod whose owner is one.
	CephOSDs      []cephv1alpha1.CephOSD
	KnowsCephOSDs bool
	// Daemon names what a pod runs; nil: nobody knows which pods are of one daemon.
	Daemon func(*corev1.Pod) string
}

// CephOSDsOf names the CephOSDs that are owners of these pods, each once.
func CephOSDsOf(pods []corev1.Pod) (names []string) {
	for i := range pods {
		for _, o := range pods[i].OwnerReferences {
			if isCephOSD(o) && !slices.Contains(names, o.Name) {
				names = append(names, o.Name)
			}
		}
	}
	return names
}

func isCephOSD(o metav1.OwnerReference) bool {
	group, _, _ := strings.Cut(o.APIVersion, "/")
	return group == cephv1alpha1.GroupVersion.Group && o.Kind == cephv1alpha1.Kind
}

// Find finds all wishes, by the name of the pod. Whoever reads the objects one list after the other has to read the
// pods first: a pod that is newer than the list of its owners would look as if it had none.
func Find(o Objects) []Wish {
	w := world{pods: map[types.UID][]*corev1.Pod{}, owners: map[types.UID]string{}}
	for i := range o.Pods {
		if owner := metav1.GetControllerOfNoCopy(&o.Pods[i]); owner != nil && lives(&o.Pods[i]) {
			w.pods[owner.UID] = append(w.pods[owner.UID], &o.Pods[i])
		}
	}
	w.replicaSets(o.ReplicaSets, o.Deployments)
	for i := range o.StatefulSets {
		w.owner("StatefulSet", &o.StatefulSets[i], w.statefulSet)
	}
	for i := range o.DaemonSets {
		w.owner("DaemonSet", &o.DaemonSets[i], w.daemonSet)
	}
	for i := range o.CephOSDs {
		w.owner(cephv1alpha1.Kind, &o.CephOSDs[i], func(metav1.Object, []*corev1.Pod) {})
	}
	w.orphans(o)
	slices.SortFunc(w.out, func(a, b Wish) int { return cmp.Compare(a.Pod, b.Pod) })
	return w.out
}

// Runs tells whether the daemon of a pod runs, as the guard of deletions reads it. Where it does not the pod may be
// deleted, so that it waits for nothing.
func Runs(p *corev1.Pod) bool {
	if !lives(p) || p.Status.Phase != corev1.PodRunning {
		return false
	}
	daemon := func(s corev1.ContainerStatus) bool { return s.Name == "osd" || s.Name == "mon" }
	named := slices.ContainsFunc(p.Status.ContainerStatuses, daemon)
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil && (!named || daemon(s))
	})
}

// lives tells whether a pod counts for its controller.
func lives(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

type world struct {
	pods   map[types.UID][]*corev1.Pod // that live, by their controller
	owners map[types.UID]string        // that are there, and not being deleted: by which name
	out    []Wish
}

// add adds a wish, unless the pod waits for nothing.
func (w *world) add(p *corev1.Pod, wish Wish) {
	if !Runs(p) {
		return
	}
	wish.Pod, wish.UID, wish.Node = p.Name, p.UID, p.Spec.NodeName
	w.out = append(w.out, wish)
}

// owner looks at the pods of an owner. One that is being deleted decides nothing any more: its pods are orphans.
func (w *world) owner(kind string, o metav1.Object, decide func(o metav1.Object, pods []*corev1.Pod)) {
	if o.GetDeletionTimestamp() != nil {
		return
	}
	w.owners[o.GetUID()] = kind + "/" + o.GetName()
	if pods := w.pods[o.GetUID()]; len(pods) > 0 {
		decide(o, pods)
	}
}

func (w *world) replicaSets(all []appsv1.ReplicaSet, deployments []appsv1.Deployment) {
	byUID := map[types.UID]*appsv1.Deployment{}
	for i := range deployments {
		byUID[deployments[i].UID] = &deployments[i]
	}
	for i := range all {
		r := &all[i]
		w.owner("ReplicaSet", r, func(_ metav1.Object, pods []*corev1.Pod) {
			var d *appsv1.Deployment
			if owner := metav1.GetControllerOfNoCopy(r); owner != nil {
				d = byUID[owner.UID]
			}
			if d != nil {
				w.owners[r.UID] = "Deployment/" + d.Name
			}
			w.replicaSet(r, d, pods)
		})
	}
}

// replicaSet wants the pods that it has too many of. A Deployment that is paused makes no pod in their place, so
// nothing is wanted of it until it goes on.
func (w *world) replicaSet(r *appsv1.ReplicaSet, d *appsv1.Deployment, pods []*corev1.Pod) {
	excess := len(pods) - number(r.Spec.Replicas, 1)
	if excess <= 0 || d != nil && d.Spec.Paused {
		return
	}
	wish := Wish{Owner: w.owners[r.UID], Since: refusedSince(r)}
	if d != nil {
		// One that scales down keeps the ReplicaSet that it has; one that changed brings the old one to 0.
		wish.Newer = d.DeletionTimestamp == nil && number(d.Spec.Replicas, 1) > 0 && number(r.Spec.Replicas, 1) == 0
	}
	for _, p := range firstToGo(pods)[:excess] {
		w.add(p, wish)
	}
}

// firstToGo is the order in which a ReplicaSet deletes, as far as it matters here.
func firstToGo(pods []*corev1.Pod) []*corev1.Pod {
	pods = slices.Clone(pods)
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(rank(a)-rank(b), b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return pods
}

func rank(p *corev1.Pod) int {
	switch {
	case p.Spec.NodeName == "":
		return 0
	case !ready(p):
		return 1
	default:
		return 2
	}
}

// refusedSince is since when a ReplicaSet says that it could not delete.
func refusedSince(r *appsv1.ReplicaSet) time.Time {
	for _, c := range r.Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue && c.Reason == "FailedDelete" {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// orphans are pods whose owners are all gone, or being deleted with their dependents. Of owners of other kinds than
// those that run storage nothing is known.
func (w *world) orphans(all Objects) {
	for i := range all.Pods {
		p := &all.Pods[i]
		owner := metav1.GetControllerOfNoCopy(p)
		if owner == nil || slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool {
			return !all.knows(o) || w.owners[o.UID] != ""
		}) {
			continue
		}
		wish := Wish{Owner: owner.Kind + "/" + owner.Name, Orphan: true}
		if next := w.successor(all, p); next != "" {
			wish.Owner, wish.Newer = next, true
		}
		w.add(p, wish)
	}
}

// successor is whose pod takes the place of an orphan; "": nobody's does. A Deployment that was deleted and made again,
// as by `kubectl replace --force`, makes its pod beside the one that waits to go: it cannot take that one over. A pod
// that its own owner wants gone for good takes nobody's place.
func (w *world) successor(all Objects, orphan *corev1.Pod) string {
	if all.Daemon == nil {
		return ""
	}
	for i := range all.Pods {
		p := &all.Pods[i]
		owner := metav1.GetControllerOfNoCopy(p)
		if p.UID == orphan.UID || owner == nil || !lives(p) || all.Daemon(p) != all.Daemon(orphan) {
			continue
		}
		leaves := slices.ContainsFunc(w.out, func(x Wish) bool { return x.UID == p.UID && !x.Newer })
		if name := w.owners[owner.UID]; name != "" && !leaves {
			return name
		}
	}
	return ""
}

// knows tells whether an owner would be among the objects if it existed.
func (all Objects) knows(o metav1.OwnerReference) bool {
	if isCephOSD(o) {
		return all.KnowsCephOSDs
	}
	return o.APIVersion == appsv1.SchemeGroupVersion.String() &&
		slices.Contains([]string{"ReplicaSet", "StatefulSet", "DaemonSet"}, o.Kind)
}

func number(n *int32, otherwise int) int {
	if n == nil {
		return otherwise
	}
	return int(*n)
}
