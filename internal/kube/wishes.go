package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/windows"
	"github.com/lockkeeper/lockkeeper/internal/wish"
)

// This file finds which pods of a storage cluster somebody wants gone. The guard of deletions has them wait.

// StorageWish is a wish for the pod of an OSD or of a mon.
type StorageWish struct {
	wish.Wish
	// Daemon is what the pod runs: "osd.3", "mon.a".
	Daemon string `json:"daemon"`
}

func (w StorageWish) String() string {
	switch {
	case w.Newer && w.Orphan:
		return fmt.Sprintf("%s (pod %s): its owner is gone, and %s has another pod there", w.Daemon, w.Pod, w.Owner)
	case w.Newer:
		return fmt.Sprintf("%s (pod %s): %s wants a newer one", w.Daemon, w.Pod, w.Owner)
	case w.Orphan:
		return fmt.Sprintf("%s (pod %s): its owner %s is gone", w.Daemon, w.Pod, w.Owner)
	}
	return fmt.Sprintf("%s (pod %s): %s wants it gone for good", w.Daemon, w.Pod, w.Owner)
}

// RestartMode is what a policy says of pods that wait to be restarted.
func RestartMode(p *v1alpha1.MaintenancePolicy) v1alpha1.RestartMode {
	if p.Spec.Ceph == nil {
		return v1alpha1.RestartsApprove
	}
	return cmp.Or(p.Spec.Ceph.Restarts, v1alpha1.RestartsApprove)
}

// RestartWindows are the times in which a policy wants them to go, or what is wrong with the first that makes no sense.
func RestartWindows(p *v1alpha1.MaintenancePolicy) ([]windows.Window, *input.Error) {
	if p.Spec.Ceph == nil {
		return nil, nil
	}
	return podspec.Windows("spec.ceph.restartWindows", p.Spec.Ceph.RestartWindows)
}

// GuardedPods are those of the pods of a policy's namespace that the guard of deletions holds: the OSDs, and mons whose
// pods say which mon they are.
func GuardedPods(p *v1alpha1.MaintenancePolicy, all []corev1.Pod) ([]corev1.Pod, error) {
	osds, err := metav1.LabelSelectorAsSelector(OSDSelector(p))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSelector, err)
	}
	mons, err := metav1.LabelSelectorAsSelector(MonSelector(p))
	if err != nil {
		return nil, fmt.Errorf("spec.ceph.daemons.mon: %w", err)
	}
	var out []corev1.Pod
	for i := range all {
		set := labels.Set(all[i].Labels)
		if osds.Matches(set) && set[IDLabel(p)] != "" || isMon(mons, set) {
			out = append(out, all[i])
		}
	}
	return out, nil
}

func isMon(mons labels.Selector, set labels.Set) bool {
	return set[MonLabel] != "" && set["mon_canary"] == "" && mons.Matches(set)
}

// DaemonOf is what a guarded pod runs.
func DaemonOf(p *v1alpha1.MaintenancePolicy, pod *corev1.Pod) string {
	if osds, err := metav1.LabelSelectorAsSelector(OSDSelector(p)); err == nil && osds.Matches(labels.Set(pod.Labels)) {
		return "osd." + pod.Labels[IDLabel(p)]
	}
	return "mon." + pod.Labels[MonLabel]
}

// WishesFor are the wishes for a policy's guarded pods, of which o.Pods are some. Mons come first, then OSDs by number.
func WishesFor(p *v1alpha1.MaintenancePolicy, o wish.Objects) []StorageWish {
	daemons := map[string]string{}
	for i := range o.Pods {
		daemons[o.Pods[i].Name] = DaemonOf(p, &o.Pods[i])
	}
	o.Daemon = func(pod *corev1.Pod) string { return daemons[pod.Name] }
	var out []StorageWish
	for _, w := range wish.Find(o) {
		out = append(out, StorageWish{Wish: w, Daemon: daemons[w.Pod]})
	}
	slices.SortStableFunc(out, func(a, b StorageWish) int { return CompareDaemons(a.Daemon, b.Daemon) })
	return out
}

// CompareDaemons orders mons before OSDs, and these by number.
func CompareDaemons(a, b string) int {
	kindA, nameA, _ := strings.Cut(a, ".")
	kindB, nameB, _ := strings.Cut(b, ".")
	return cmp.Or(cmp.Compare(kindA, kindB), len(nameA)-len(nameB), cmp.Compare(nameA, nameB))
}

// StorageObjects reads what wishes follow from, the pods first.
func StorageObjects(
	ctx context.Context, typed kubernetes.Interface, api client.Reader, p *v1alpha1.MaintenancePolicy,
) (wish.Objects, error) {
	var o wish.Objects
	all, err := typed.CoreV1().Pods(p.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return o, fmt.Errorf("list pods: %w", err)
	}
	if o.Pods, err = GuardedPods(p, all.Items); err != nil {
		return o, err
	}
	apps := typed.AppsV1()
	replicaSets, err := apps.ReplicaSets(p.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return o, fmt.Errorf("list ReplicaSets: %w", err)
	}
	deployments, err := apps.Deployments(p.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return o, fmt.Errorf("list Deployments: %w", err)
	}
	statefulSets, err := apps.StatefulSets(p.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return o, fmt.Errorf("list StatefulSets: %w", err)
	}
	daemonSets, err := apps.DaemonSets(p.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return o, fmt.Errorf("list DaemonSets: %w", err)
	}
	o.ReplicaSets, o.Deployments, o.StatefulSets, o.DaemonSets = replicaSets.Items, deployments.Items, statefulSets.Items,
		daemonSets.Items
	err = ReadCephOSDs(ctx, api, p.Namespace, &o) // on a line of its own: it changes what is returned
	return o, err
}

// ReadCephOSDs reads the CephOSDs that are owners of the pods, one by one: the worker may not list them. Where the API
// server knows no such kind, or does not tell who asks, nothing is known of their pods.
func ReadCephOSDs(ctx context.Context, api client.Reader, namespace string, o *wish.Objects) error {
	for _, name := range wish.CephOSDsOf(o.Pods) {
		var c cephv1alpha1.CephOSD
		switch err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &c); {
		case meta.IsNoMatchError(err), apierrors.IsForbidden(err):
			o.CephOSDs, o.KnowsCephOSDs = nil, false
			return nil
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("read CephOSD %s: %w", name, err)
		default:
			o.CephOSDs = append(o.CephOSDs, c)
		}
		o.KnowsCephOSDs = true
	}
	return nil
}

// StorageWishes reads which pods of a policy somebody wants gone.
func (c *Cluster) StorageWishes(ctx context.Context, p *v1alpha1.MaintenancePolicy) ([]StorageWish, error) {
	o, err := StorageObjects(ctx, c.typed, c.api, p)
	if err != nil {
		return nil, err
	}
	return WishesFor(p, o), nil
}
