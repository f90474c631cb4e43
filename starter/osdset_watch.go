package starter

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
)

// gatherFor is how long the watcher listens on after it has heard of something, so that a node whose twenty pods go is
// one signal. A rollout takes minutes, and what protects the storage does not wait for it.
const gatherFor = 200 * time.Millisecond

// knowsCephOSDs tells whether the API server serves CephOSDs. Where Rook or somebody else makes the pods of all OSDs it
// need not, and a watch for it would keep everything else waiting.
func knowsCephOSDs(mapper meta.RESTMapper) (bool, error) {
	_, err := mapper.RESTMapping(schema.GroupKind{Group: cephv1alpha1.GroupVersion.Group, Kind: cephv1alpha1.Kind},
		cephv1alpha1.GroupVersion.Version)
	switch {
	case meta.IsNoMatchError(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("ask the API server whether it knows CephOSDs: %w", err)
	}
	return true, nil
}

// watchOSDSets watches CephOSDs, now or as soon as there can be any.
func watchOSDSets(mgr manager.Manager, known kinds, r *OSDSetReconciler) error {
	switch {
	case known.cephOSDs:
		return registerOSDSets(mgr, r)
	case known.away:
		r.Log.Info("the API server does not answer; CephOSDs are watched as soon as it knows them")
	default:
		r.Log.Info("the API server knows no CephOSD; they are watched as soon as deploy/crds is installed")
	}
	return mgr.Add(&osdSetsLater{mgr: mgr, osdSet: r})
}

func registerOSDSets(mgr manager.Manager, r *OSDSetReconciler) error {
	if r.Known != nil {
		if err := r.Known(); err != nil {
			return err
		}
	}
	cached := mgr.GetCache()
	return ctrl.NewControllerManagedBy(mgr).
		Named("rollouts").
		Watches(&cephv1alpha1.CephOSD{}, soon(func(_ context.Context, o client.Object) []types.NamespacedName {
			return []types.NamespacedName{client.ObjectKeyFromObject(o)}
		})).
		Watches(&corev1.Pod{}, soon(func(_ context.Context, o client.Object) []types.NamespacedName { return ownerOf(o) })).
		Watches(&corev1.Node{}, soon(
			func(ctx context.Context, _ client.Object) []types.NamespacedName { return osdSetsOf(ctx, cached, "") })).
		Watches(&v1alpha1.MaintenancePolicy{}, soon(func(ctx context.Context, o client.Object) []types.NamespacedName {
			return osdSetsOf(ctx, cached, o.GetNamespace())
		})).
		WithEventFilter(updatesThat(mattersToOSDSet)).
		WithOptions(sideBySide()).
		Complete(r)
}

// soon asks for a look a moment later. All that is heard meanwhile is one look.
func soon(concerned func(context.Context, client.Object) []types.NamespacedName) handler.EventHandler {
	return soonAfter(gatherFor, concerned)
}

func soonAfter(
	pause time.Duration, concerned func(context.Context, client.Object) []types.NamespacedName,
) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	ask := func(ctx context.Context, q queue, objects ...client.Object) {
		for _, o := range objects {
			for _, name := range concerned(ctx, o) {
				q.AddAfter(reconcile.Request{NamespacedName: name}, pause)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { ask(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { ask(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { ask(ctx, q, e.Object) },
	}
}

// ownerOf is the CephOSD that a pod's label names.
func ownerOf(pod client.Object) []types.NamespacedName {
	name, ok := strings.CutPrefix(pod.GetLabels()[podspec.OwnerLabel], podspec.Owner(""))
	if !ok || name == "" {
		return nil
	}
	return []types.NamespacedName{{Namespace: pod.GetNamespace(), Name: name}}
}

// osdSetsOf are the CephOSDs of a namespace; "": of all. There are few.
func osdSetsOf(ctx context.Context, cached client.Reader, namespace string) []types.NamespacedName {
	var list cephv1alpha1.CephOSDList
	if err := cached.List(ctx, &list, client.UnsafeDisableDeepCopy, client.InNamespace(namespace)); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list the CephOSDs in the cache")
		return nil
	}
	out := make([]types.NamespacedName, len(list.Items))
	for i := range list.Items {
		out[i] = client.ObjectKeyFromObject(&list.Items[i])
	}
	return out
}

// mattersToOSDSet tells whether an update may change a snapshot of a CephOSD. How a pod is does not, unless it has
// ended.
func mattersToOSDSet(before, now client.Object) bool {
	was, isPod := before.(*corev1.Pod)
	if !isPod {
		if _, isPolicy := now.(*v1alpha1.MaintenancePolicy); isPolicy {
			return false // only its name is in the snapshot
		}
		return !reflect.DeepEqual(unversioned(before), unversioned(now))
	}
	is, ok := now.(*corev1.Pod)
	return !ok || was.UID != is.UID || was.Status.Phase != is.Status.Phase ||
		!reflect.DeepEqual(was.Labels, is.Labels) || !reflect.DeepEqual(was.Annotations, is.Annotations)
}
