package starter

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/internal/wish"
)

// WishReconciler tells the restart of what waits that somebody wants storage pods gone, or does not any more.
type WishReconciler struct {
	Objects  client.Reader // a cache
	Temporal Temporal
	Log      logr.Logger

	policies sync.Map // of *wishes by storage.ClusterKey
	watched  controller.Controller
}

// wishes is what the watcher remembers of one policy's. Its key is reconciled by one goroutine at a time.
type wishes struct {
	seen, told           *WishSnapshot
	taints, toldOfTaints *TaintSnapshot
}

// gatherWishes is how long the watcher listens on, so that a restart of all OSDs is one signal.
const gatherWishes = 50 * time.Millisecond

// Reconcile looks at a policy's wishes.
func (r *WishReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := storage.ClusterKey{Namespace: req.Namespace, Name: req.Name}
	p := &v1alpha1.MaintenancePolicy{}
	if err := r.Objects.Get(ctx, req.NamespacedName, p); apierrors.IsNotFound(err) || err == nil &&
		!p.DeletionTimestamp.IsZero() {
		r.policies.Delete(key)
		return reconcile.Result{}, nil // the job finds that there is no policy
	} else if err != nil {
		return reconcile.Result{}, err
	}
	objects, pods, err := r.gather(ctx, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	known, _ := r.policies.LoadOrStore(key, &wishes{})
	k, now := known.(*wishes), time.Now()
	seen := TakeWishes(wishRules(p), kube.WishesFor(p, objects), k.seen, now)
	k.seen = &seen
	later, err := r.taints(ctx, p, pods, k, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	again := reconcile.Result{RequeueAfter: soonest(seen.lookAgain(now), later)}
	counting := seen.counting(now)
	news := DecideWishes(k.told, counting, func(uid types.UID) bool { return gone(pods, uid) })
	if news.Reason != "" {
		if err := r.Temporal.SignalWaiting(ctx, key, news.Reason, news.Start); err != nil {
			return reconcile.Result{}, err
		}
		r.Log.Info("told the restart of what waits", "policy", key.String(), "reason", news.Reason)
	}
	k.told = &counting
	return again, nil
}

// taints starts the drains of nodes whose taints are to drive the policy's pods off, and says after which time to look
// again; 0: when something happens.
func (r *WishReconciler) taints(
	ctx context.Context, p *v1alpha1.MaintenancePolicy, pods []corev1.Pod, k *wishes, now time.Time,
) (time.Duration, error) {
	var nodes corev1.NodeList
	if err := r.Objects.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list nodes in the cache: %w", err)
	}
	seen := TakeTaints(kube.RestartMode(p), kube.DrivenOff(p, pods, nodes.Items), k.taints, now)
	k.taints = &seen
	counting := seen.counting(now)
	for _, drain := range DecideTaints(k.toldOfTaints, counting) {
		if err := r.Temporal.StartDrain(ctx, drain); err != nil {
			return 0, err
		}
		r.Log.Info("started a drain", "node", drain.Node, "reason", drain.Reason)
	}
	k.toldOfTaints = &counting
	return seen.lookAgain(now), nil
}

// soonest is the shorter of two times, of which 0 is none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

func wishRules(p *v1alpha1.MaintenancePolicy) WishRules {
	r := WishRules{Mode: kube.RestartMode(p), Open: openForOthers(p)}
	if p.Spec.Ceph != nil && len(p.Spec.Ceph.RestartWindows) > 0 {
		r.Windows = fmt.Sprint(p.Spec.Ceph.RestartWindows)
	}
	return r
}

// gone tells whether a pod is not there, or stops.
func gone(pods []corev1.Pod, uid types.UID) bool {
	for i := range pods {
		if pods[i].UID == uid {
			return !wish.Runs(&pods[i])
		}
	}
	return true
}

// openForOthers is the failure domain that is open, unless the restart of what waits itself has the lease.
func openForOthers(p *v1alpha1.MaintenancePolicy) string {
	own := jobs.RestartWaiting.ID(p.Namespace, p.Name)
	for _, c := range p.Status.Lease.Holders {
		if c.WorkflowID == own {
			return ""
		}
	}
	if p.Status.OpenFailureDomain == nil {
		return ""
	}
	return p.Status.OpenFailureDomain.Name
}

// gather reads from the cache, the pods first. It does not copy.
func (r *WishReconciler) gather(
	ctx context.Context, p *v1alpha1.MaintenancePolicy,
) (wish.Objects, []corev1.Pod, error) {
	var (
		pods         corev1.PodList
		replicaSets  appsv1.ReplicaSetList
		deployments  appsv1.DeploymentList
		statefulSets appsv1.StatefulSetList
		daemonSets   appsv1.DaemonSetList
	)
	for _, list := range []client.ObjectList{&pods, &replicaSets, &deployments, &statefulSets, &daemonSets} {
		if err := r.Objects.List(ctx, list, client.UnsafeDisableDeepCopy, client.InNamespace(p.Namespace)); err != nil {
			return wish.Objects{}, nil, fmt.Errorf("list %T in the cache: %w", list, err)
		}
	}
	guarded, err := kube.GuardedPods(p, pods.Items)
	if err != nil {
		return wish.Objects{}, nil, nil //nolint:nilerr // a policy that makes no sense: the other reconciler says so
	}
	o := wish.Objects{
		Pods: guarded, ReplicaSets: replicaSets.Items, Deployments: deployments.Items, StatefulSets: statefulSets.Items,
		DaemonSets: daemonSets.Items,
	}
	err = kube.ReadCephOSDs(ctx, r.Objects, p.Namespace, &o)
	return o, guarded, err
}

// watchWishes watches whatever a wish follows from.
func watchWishes(mgr manager.Manager, r *WishReconciler) error {
	cached := mgr.GetCache()
	ofNamespace := soonAfter(gatherWishes, func(ctx context.Context, o client.Object) []types.NamespacedName {
		return policiesIn(ctx, cached, o.GetNamespace())
	})
	itself := soonAfter(gatherWishes, func(_ context.Context, o client.Object) []types.NamespacedName {
		return []types.NamespacedName{client.ObjectKeyFromObject(o)}
	})
	anywhere := soonAfter(gatherWishes, func(ctx context.Context, _ client.Object) []types.NamespacedName {
		return policiesIn(ctx, cached, metav1.NamespaceAll)
	})
	watched, err := ctrl.NewControllerManagedBy(mgr).
		Named("wishes").
		Watches(&v1alpha1.MaintenancePolicy{}, itself).
		Watches(&corev1.Pod{}, ofNamespace).
		Watches(&corev1.Node{}, anywhere, builder.WithPredicates(updatesThat(drivesOthersOff))).
		Watches(&appsv1.ReplicaSet{}, ofNamespace).
		Watches(&appsv1.Deployment{}, ofNamespace).
		Watches(&appsv1.StatefulSet{}, ofNamespace).
		Watches(&appsv1.DaemonSet{}, ofNamespace).
		WithEventFilter(updatesThat(mattersToWishes)).
		WithOptions(sideBySide()).
		Build(r)
	r.watched = watched
	return err
}

// watchCephOSDs watches whether CephOSDs are there, from when the API server knows them: one that is deleted wants its
// pods to follow.
func (r *WishReconciler) watchCephOSDs(mgr manager.Manager) error {
	cached := mgr.GetCache()
	ofNamespace := soonAfter(gatherWishes, func(ctx context.Context, o client.Object) []types.NamespacedName {
		return policiesIn(ctx, cached, o.GetNamespace())
	})
	return r.watched.Watch(source.Kind[client.Object](cached, &cephv1alpha1.CephOSD{}, ofNamespace, predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
		},
	}))
}

// drivesOthersOff tells whether an update of a node may change which pods its taints drive off.
func drivesOthersOff(before, now client.Object) bool {
	was, ok := before.(*corev1.Node)
	is, same := now.(*corev1.Node)
	return ok && same && !reflect.DeepEqual(leaving.DrivesOff(was), leaving.DrivesOff(is))
}

// policiesIn are the policies of a namespace; "": of all.
func policiesIn(ctx context.Context, cached client.Reader, namespace string) (out []types.NamespacedName) {
	var list v1alpha1.MaintenancePolicyList
	if err := cached.List(ctx, &list, client.UnsafeDisableDeepCopy, client.InNamespace(namespace)); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list the policies in the cache")
		return nil
	}
	for i := range list.Items {
		out = append(out, client.ObjectKeyFromObject(&list.Items[i]))
	}
	return out
}

// mattersToWishes tells whether an update may change a wish. Of a policy it is how it wants restarts, and what is open.
func mattersToWishes(before, now client.Object) bool {
	was, isPolicy := before.(*v1alpha1.MaintenancePolicy)
	is, same := now.(*v1alpha1.MaintenancePolicy)
	if !isPolicy || !same {
		return matters(before, now)
	}
	return was.Generation != is.Generation || openForOthers(was) != openForOthers(is) ||
		was.DeletionTimestamp.IsZero() != is.DeletionTimestamp.IsZero()
}
