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

// FleetReconciler compares what is with what was, one CephOSD at a time, and starts rollouts or tells those at work.
type FleetReconciler struct {
	Objects  client.Reader // a cache
	Temporal Temporal
	Log      logr.Logger
	Now      func() time.Time

	fleets sync.Map // of *fleet by types.NamespacedName
}

// fleet is what the watcher remembers of one CephOSD. Its key is reconciled by one goroutine at a time.
type fleet struct {
	seen    *FleetSnapshot
	pending string // why its rollout has to be told, and was not yet
}

// Reconcile takes a snapshot and tells the rollout what has changed. What could not be told is kept, and the error
// makes the queue come back to it.
func (r *FleetReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	objects, err := r.gather(ctx, req)
	if apierrors.IsNotFound(err) {
		r.fleets.Delete(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	known, _ := r.fleets.LoadOrStore(req.NamespacedName, &fleet{})
	f := known.(*fleet)
	now := TakeFleet(objects, f.seen, r.Now())
	f.pending = joinReasons(f.pending, DecideFleet(f.seen, now))
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
	return reconcile.Result{RequeueAfter: now.lookAgain()}, nil
}

// gather reads from the cache, without a copy.
func (r *FleetReconciler) gather(ctx context.Context, req reconcile.Request) (FleetObjects, error) {
	o := FleetObjects{CephOSD: &cephv1alpha1.CephOSD{}}
	if err := r.Objects.Get(ctx, req.NamespacedName, o.CephOSD); err != nil {
		return FleetObjects{}, err
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
			return FleetObjects{}, fmt.Errorf("list %T in the cache: %w", list, err)
		}
	}
	o.Pods, o.Nodes, o.Policies = pods.Items, nodes.Items, policies.Items
	return o, nil
}
