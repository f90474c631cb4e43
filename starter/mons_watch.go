package starter

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
)

// knowsCephMons tells whether the API server serves CephMons. Where Rook runs the mons it need not.
func knowsCephMons(mapper meta.RESTMapper) (bool, error) {
	_, err := mapper.RESTMapping(schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "CephMon"},
		v1alpha1.GroupVersion.Version)
	switch {
	case meta.IsNoMatchError(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("ask the API server whether it knows CephMons: %w", err)
	}
	return true, nil
}

// askForCephMons is how soon the watcher notices that CephMons were installed after it had started.
const askForCephMons = time.Minute

// watchMons watches CephMons, now or as soon as there can be any.
func watchMons(mgr manager.Manager, known kinds, r *MonReconciler) error {
	if known.cephMons {
		return registerMons(mgr, r)
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		err := wait.PollUntilContextCancel(ctx, askForCephMons, known.away, func(context.Context) (bool, error) {
			known, err := knowsCephMons(mgr.GetRESTMapper())
			return known && err == nil, nil
		})
		if err != nil {
			return nil //nolint:nilerr // the watcher ends
		}
		return registerMons(mgr, r)
	}))
}

func registerMons(mgr manager.Manager, r *MonReconciler) error {
	cached := mgr.GetCache()
	inNamespace := soon(func(ctx context.Context, o client.Object) []types.NamespacedName {
		return cephMonsOf(ctx, cached, o.GetNamespace())
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("mons").
		Watches(&v1alpha1.CephMon{}, soon(func(_ context.Context, o client.Object) []types.NamespacedName {
			return []types.NamespacedName{client.ObjectKeyFromObject(o)}
		})).
		Watches(&appsv1.Deployment{}, inNamespace).
		Watches(&v1alpha1.MaintenancePolicy{}, inNamespace).
		Watches(&corev1.Node{}, soon(
			func(ctx context.Context, _ client.Object) []types.NamespacedName { return cephMonsOf(ctx, cached, "") })).
		WithEventFilter(updatesThat(mattersToMons)).
		WithOptions(sideBySide()).
		Complete(r)
}

// cephMonsOf are the CephMons of a namespace; "": of all. There are few.
func cephMonsOf(ctx context.Context, cached client.Reader, namespace string) []types.NamespacedName {
	var list v1alpha1.CephMonList
	if err := cached.List(ctx, &list, client.UnsafeDisableDeepCopy, client.InNamespace(namespace)); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list the CephMons in the cache")
		return nil
	}
	out := make([]types.NamespacedName, len(list.Items))
	for i := range list.Items {
		out[i] = client.ObjectKeyFromObject(&list.Items[i])
	}
	return out
}
