package starter

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file is the watcher's lens on nodes that are about to leave, and have other storage than Ceph on them. Ceph's
// own lens looks after the others: there a drain is observed once it has taken an OSD down.

// Homes tells which storage a node hosts.
type Homes interface {
	On(ctx context.Context, node string) (Home, error)
}

// Home is the storage on a node.
type Home struct {
	Kinds []storage.Kind // of the policies whose daemons it hosts, each once
	// Expiry is the age from which an autoscaler's taint does not count, the longest that one of them has; 0: an hour.
	Expiry time.Duration
}

// LeavingReconciler starts a ScaleDownNode when a node with storage announces that it leaves.
type LeavingReconciler struct {
	Objects  client.Reader // a cache with nodes
	Homes    Homes
	Temporal Temporal
	Log      logr.Logger
	Now      func() time.Time

	told sync.Map // of departure by the node's name: what its job was told last
	seen sync.Map // of time.Time by the node's name: since when it leaves, and no job was told
}

// follows is how long a node leaves before a job is started for it. Its keeper hears of it by itself, and decides at
// once; the job sees the node through, and neither it nor its claim is to take that moment from the keeper.
const follows = time.Second

// departure is how a node leaves. Another one is news to its job, which may have seen in between that it stays: an
// autoscaler that begins anew writes another time on it.
type departure struct {
	UID   types.UID
	Way   leaving.Way
	Signs leaving.Signs
}

// Reconcile looks at one node. What could not be told is told again, since the error makes the queue come back to it.
func (r *LeavingReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var n corev1.Node
	if err := r.Objects.Get(ctx, req.NamespacedName, &n); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.Name) // its job watches it by itself
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, err
	}
	signs, now := leaving.Of(&n), r.Now()
	if signs == (leaving.Signs{}) { // of all nodes but a few this is all that is to be looked at
		r.forget(req.Name)
		return reconcile.Result{}, nil
	}
	home, err := r.Homes.On(ctx, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	is := departure{UID: n.UID, Way: signs.How(now, home.Expiry), Signs: signs}
	expires, _ := signs.Expires(home.Expiry)
	if !scalesDown(is.Way, kube.OwnCordon(&n), home.Kinds) {
		r.forget(req.Name)
		return lookAgainAfter(expires, now), nil
	}
	was, known := r.told.Load(req.Name)
	if known && was == is {
		return lookAgainAfter(expires, now), nil
	}
	since, _ := r.seen.LoadOrStore(req.Name, now)
	if at := since.(time.Time).Add(follows); !known && now.Before(at) {
		return lookAgain(at, now), nil
	}
	why := fmt.Sprintf("%s is %s", req.Name, is.Way)
	if err := r.Temporal.SignalScaleDown(ctx, workflows.ScaleDownNodeInput{Node: req.Name}, why); err != nil {
		return reconcile.Result{}, err
	}
	r.told.Store(req.Name, is)
	r.Log.Info("told the scale-down", "node", req.Name, "reason", why)
	return lookAgainAfter(expires, now), nil
}

// forget forgets a node that does not leave.
func (r *LeavingReconciler) forget(node string) {
	r.told.Delete(node)
	r.seen.Delete(node)
}

// lookAgainAfter is lookAgain for a time that may have passed already.
func lookAgainAfter(at, now time.Time) reconcile.Result {
	if !at.After(now) {
		return reconcile.Result{}
	}
	return lookAgain(at, now)
}

// scalesDown tells whether a node that leaves in this way is for ScaleDownNode to see through (the table in ADR 28).
// Who cordons a node on which there is Ceph drains it, which is observed when it takes an OSD down. Where there is
// none, a cordon is all that there will ever be to see. A node that lockkeeper itself has cordoned is drained by a job
// of ours.
func scalesDown(way leaving.Way, ours bool, kinds []storage.Kind) bool {
	if !slices.ContainsFunc(kinds, func(k storage.Kind) bool { return k != storage.Ceph }) {
		return false
	}
	switch way {
	case leaving.Not, leaving.Gone:
		return false
	case leaving.Cordoned:
		return !ours && !slices.Contains(kinds, storage.Ceph)
	default:
		return true
	}
}

// watchLeaving has the reconciler look at each node that may be leaving, and at its node when a pod appears.
func watchLeaving(mgr manager.Manager, r *LeavingReconciler) error {
	cached := mgr.GetCache()
	return ctrl.NewControllerManagedBy(mgr).
		Named("leaving").
		For(&corev1.Node{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(nodeOfPod)).
		Watches(&v1alpha1.MaintenancePolicy{}, handler.EnqueueRequestsFromMapFunc(
			func(ctx context.Context, _ client.Object) []reconcile.Request { return allNodes(ctx, cached) })).
		WithEventFilter(updatesThat(matters)).
		WithOptions(sideBySide()).
		Complete(r)
}

// nodeOfPod is the node on which a pod runs.
func nodeOfPod(_ context.Context, o client.Object) []reconcile.Request {
	pod, is := o.(*corev1.Pod)
	if !is || pod.Spec.NodeName == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: pod.Spec.NodeName}}}
}

// allNodes are all nodes that the cache knows: a new policy may look after any of them.
func allNodes(ctx context.Context, cached client.Reader) []reconcile.Request {
	var nodes corev1.NodeList
	if err := cached.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list the nodes in the cache")
		return nil
	}
	out := make([]reconcile.Request, len(nodes.Items))
	for i := range nodes.Items {
		out[i].Name = nodes.Items[i].Name
	}
	return out
}
