package starter

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
)

// osdSetsLater watches CephOSDs from when the API server knows them. Rook's users never install them, others after
// lockkeeper.
type osdSetsLater struct {
	mgr    manager.Manager
	osdSet *OSDSetReconciler
}

// cephOSDs is the name of the CustomResourceDefinition.
var cephOSDs = "cephosds." + cephv1alpha1.GroupVersion.Group

// Start implements manager.Runnable. It returns when CephOSDs are watched.
func (f *osdSetsLater) Start(ctx context.Context) error {
	all, err := metadata.NewForConfig(f.mgr.GetConfig())
	if err != nil {
		return err
	}
	definitions := all.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions",
	})
	ours := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, cephOSDs).String()
	}
	there := func(e watch.Event) (bool, error) { return e.Type == watch.Added || e.Type == watch.Modified, nil }
	_, err = watchtools.UntilWithSync(ctx, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			ours(&o)
			return definitions.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			ours(&o)
			return definitions.Watch(ctx, o)
		},
	}, &metav1.PartialObjectMetadata{}, nil, there)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	// The API server serves them a moment after it has stored their definition.
	err = wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(context.Context) (bool, error) {
		known, err := knowsCephOSDs(f.mgr.GetRESTMapper())
		return known && err == nil, nil
	})
	if err != nil {
		return unlessEnded(ctx, err)
	}
	f.osdSet.Log.Info("CephOSDs are installed, and watched from now on")
	if err := registerOSDSets(f.mgr, f.osdSet); err != nil {
		return fmt.Errorf("watch CephOSDs: %w", err)
	}
	return nil
}

// unlessEnded is nil when the watcher ends.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}
