package starter

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
)

// OSDSetReconciler compares what is with what was, one CephOSD at a time, and starts rollouts or tells those at work.
type OSDSetReconciler struct {
	Objects  client.Reader // a cache
	Temporal Temporal
	Log      logr.Logger
	Now      func() time.Time
	// Known is called as soon as the API server knows CephOSDs: others watch them, too. It may be nil.
	Known func() error

	osdSets sync.Map // of *set by types.NamespacedName
}

// osdSet is what the watcher remembers of one CephOSD. Its key is reconciled by one goroutine at a time.
type osdSet struct {
	seen    *OSDSetSnapshot
	pending string // why its rollout has to be told, and was not yet
}

// Reconcile takes a snapshot and tells the rollout what has changed. What could not be told is kept, and the error
// makes the queue come back to it.
func (r *OSDSetReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	objects, err := r.gather(ctx, req)
	if apierrors.IsNotFound(err) {
		r.osdSets.Delete(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	known, _ := r.osdSets.LoadOrStore(req.NamespacedName, &osdSet{})
	f := known.(*osdSet)
	now := TakeOSDSet(objects, f.seen, r.Now())
	f.pending = joinReasons(f.pending, DecideOSDSet(f.seen, now))
	if f.seen = &now; now.Deleting {
		f.pending = ""
	}
	if f.pending != "" {
		if err := r.Temporal.SignalRollout(ctx, req.Namespace, req.Name, f.pending); err != nil {
			return reconcile.Result{}, err
		}
		r.Log.Info("told the rollout", "cephOSD", req.String(), "reason", f.pending)
		f.pending = ""
	}
	again := lookAgain(nextExpiry(now.Away), r.Now()).RequeueAfter
	if lost := now.lookAgain(); lost > 0 && (again == 0 || lost < again) {
		again = lost
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// gather reads from the cache, without a copy.
func (r *OSDSetReconciler) gather(ctx context.Context, req reconcile.Request) (OSDSetObjects, error) {
	o := OSDSetObjects{CephOSD: &cephv1alpha1.CephOSD{}}
	if err := r.Objects.Get(ctx, req.NamespacedName, o.CephOSD); err != nil {
		return OSDSetObjects{}, err
	}
	var (
		pods     corev1.PodList
		nodes    corev1.NodeList
		policies v1alpha1.MaintenancePolicyList
	)
	inNamespace := client.InNamespace(req.Namespace)
	for list, opts := range map[client.ObjectList][]client.ListOption{
		&pods:     {inNamespace, client.MatchingLabels{podspec.OwnerLabel: podspec.Owner(req.Name)}},
		&nodes:    nil,
		&policies: {inNamespace},
	} {
		if err := r.Objects.List(ctx, list, append(opts, client.UnsafeDisableDeepCopy)...); err != nil {
			return OSDSetObjects{}, fmt.Errorf("list %T in the cache: %w", list, err)
		}
	}
	o.Pods, o.Nodes, o.Policies = pods.Items, nodes.Items, policies.Items
	return o, nil
}
