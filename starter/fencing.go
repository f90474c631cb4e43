package starter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/machines"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file is the watcher's lens on what fences nodes. Of a policy that names no fencing it sees nothing, and watches
// nothing for it.

// FencingReconciler starts a FenceNode when a storage node is to be fenced, and tells keepers and fences what has
// changed about Machines.
type FencingReconciler struct {
	Objects  client.Reader // a cache with policies, nodes and pods
	Temporal Temporal
	Log      logr.Logger
	Now      func() time.Time

	config  *rest.Config
	enqueue chan event.GenericEvent
	lenses  sync.Map // types.NamespacedName of the policy → *lens
}

// lens is the watch over the Machines of one policy.
type lens struct {
	spec   v1alpha1.FencingSpec
	of     string // the edition of the policy that was last looked at
	holder *machines.Holder
	cache  cache.Cache
	stop   context.CancelFunc
	seen   *fenceSight
}

// fenceSight is what matters of one look. Two equal ones call for nothing.
type fenceSight struct {
	Machines map[string]string // by name, what a keeper has to know of it, of the budget, and of health checks
	Patients map[string]patient
	next     time.Time
}

// tellAnew forgets whose fences were told and are still needed. Fences end when a policy names nothing that fences. If
// it did so for a moment nobody saw that here, and nobody would hear of their nodes again.
func (s *fenceSight) tellAnew(now *fenceSight) {
	if s == nil {
		return
	}
	maps.DeleteFunc(s.Patients, func(node string, _ patient) bool {
		is, there := now.Patients[node]
		return there && is.Why != fencing.WhyRecovered
	})
}

// patient is a node with daemons that is to be fenced, or whose Machine changed.
type patient struct {
	Why     fencing.Why
	Since   time.Time
	Details string // what a job wants to hear of: conditions, boot, Machine
	Held    bool
}

// asTold tells whether nobody has to hear of a patient anew. A job that let its Machine go knows; one may have ended
// since nothing held it.
func (p patient) asTold(before patient) bool {
	before.Held = before.Held && p.Held
	return p == before
}

// lookAgainFor is when an API that is not served, or does not answer, is asked again.
const lookAgainFor = 20 * time.Second

// Reconcile looks at the Machines of one policy.
func (r *FencingReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	p := &v1alpha1.MaintenancePolicy{}
	if err := r.Objects.Get(ctx, req.NamespacedName, p); err != nil {
		r.close(req.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	spec := kube.FencingInForce(p)
	if spec.API == "" || spec.API == v1alpha1.FencingNone || !p.DeletionTimestamp.IsZero() {
		r.close(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	l, err := r.open(ctx, req.NamespacedName, spec)
	if err != nil {
		if !errors.Is(err, machines.ErrNotServed) {
			r.Log.Info("cannot watch Machines, and tries again", "policy", req.String(), "problem", err.Error())
		}
		return reconcile.Result{RequeueAfter: lookAgainFor}, nil
	}
	now, err := r.look(ctx, p, l)
	if err != nil {
		return reconcile.Result{}, err
	}
	if edition := fmt.Sprint(p.UID, " ", p.Generation); l.of != edition {
		l.of = edition
		l.seen.tellAnew(now)
	}
	if err := r.tell(ctx, storage.ClusterKey{Namespace: p.Namespace, Name: p.Name}, l.seen, now); err != nil {
		return reconcile.Result{}, err
	}
	l.seen = now
	if now.next.IsZero() {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(now.next.Sub(r.Now()), 100*time.Millisecond)}, nil
}

// open watches the Machines and health checks that a policy names, in their namespace alone.
func (r *FencingReconciler) open(
	ctx context.Context, name types.NamespacedName, spec v1alpha1.FencingSpec,
) (*lens, error) {
	if known, ok := r.lenses.Load(name); ok {
		if l := known.(*lens); reflect.DeepEqual(l.spec, spec) {
			return l, nil
		}
		r.close(name)
	}
	opts := cache.Options{
		Scheme: kube.Scheme, DefaultTransform: cache.TransformStripManagedFields(),
		DefaultWatchErrorHandler: func(ctx context.Context, reflector *toolscache.Reflector, err error) {
			toolscache.DefaultWatchErrorHandler(ctx, reflector, err)
			r.notServed(name, err)
		},
	}
	if spec.Namespace != "" {
		opts.DefaultNamespaces = map[string]cache.Config{spec.Namespace: {}}
	}
	watched, err := cache.New(r.config, opts)
	if err != nil {
		return nil, err
	}
	reader, err := client.New(r.config, client.Options{Scheme: kube.Scheme, Cache: &client.CacheOptions{
		Reader: watched, Unstructured: true,
	}})
	if err != nil {
		return nil, err
	}
	l := &lens{spec: spec, cache: watched}
	if l.holder, err = machines.For(reader, storage.ClusterKey{Namespace: name.Namespace, Name: name.Name},
		spec); err != nil {
		return nil, err
	}
	kinds, err := l.holder.Watched()
	if err != nil {
		return nil, err
	}
	lensCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	go func() {
		if err := watched.Start(lensCtx); err != nil {
			r.Log.Error(err, "the watch over Machines ended", "policy", name.String())
		}
	}()
	if err := r.watch(ctx, watched, name, kinds); err != nil {
		stop()
		return nil, err
	}
	r.lenses.Store(name, l)
	r.Log.Info("watching what fences nodes", "policy", name.String(), "api", spec.API, "namespace", spec.Namespace)
	return l, nil
}

// notServed takes in that a kind is not served any more in the version that is watched, as when Cluster API is removed
// and comes back: the watch would go on asking for it, and show what was there. So it begins anew.
func (r *FencingReconciler) notServed(name types.NamespacedName, err error) {
	if !apierrors.IsNotFound(err) {
		return
	}
	r.Log.Info("what fences nodes is not served any more as it was", "policy", name.String(), "problem", err.Error())
	r.close(name)
	r.enqueue <- eventOf(name)
}

func eventOf(name types.NamespacedName) event.GenericEvent {
	policy := &v1alpha1.MaintenancePolicy{}
	policy.Namespace, policy.Name = name.Namespace, name.Name
	return event.GenericEvent{Object: policy}
}

// syncWithin bounds the wait for a first list: a kind that may not be listed never comes.
const syncWithin = 15 * time.Second

func (r *FencingReconciler) watch(
	ctx context.Context, watched cache.Cache, name types.NamespacedName, kinds []schema.GroupVersionKind,
) error {
	ctx, cancel := context.WithTimeout(ctx, syncWithin)
	defer cancel()
	for _, k := range kinds {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(k)
		informer, err := watched.GetInformer(ctx, o)
		if err != nil {
			return fmt.Errorf("watch %s: %w", k.Kind, err)
		}
		if _, err := informer.AddEventHandler(onAny(func() { r.enqueue <- eventOf(name) })); err != nil {
			return err
		}
	}
	return nil
}

// onAny calls f for everything that happens to an object.
func onAny(f func()) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { f() }, UpdateFunc: func(any, any) { f() }, DeleteFunc: func(any) { f() },
	}
}

func (r *FencingReconciler) close(name types.NamespacedName) {
	if known, ok := r.lenses.LoadAndDelete(name); ok {
		known.(*lens).stop()
	}
}

// look takes a sight of the policy's Machines and of the nodes that host its daemons.
func (r *FencingReconciler) look(ctx context.Context, p *v1alpha1.MaintenancePolicy, l *lens) (*fenceSight, error) {
	objects, checks, err := l.holder.Look(ctx)
	if err != nil {
		return nil, err
	}
	hosts, nodes, err := r.hosts(ctx, p)
	if err != nil {
		return nil, err
	}
	now := r.Now().UTC()
	s := &fenceSight{Patients: map[string]patient{}}
	if s.Machines, err = l.holder.Marks(ctx, objects); err != nil {
		return nil, err
	}
	for _, c := range checks { // the keeper says which would never act
		s.Machines["health check "+c.Name] = c.Acts()
	}
	for i := range objects {
		o := &objects[i]
		m := l.holder.Describe(o)
		if !hosts[m.Node] && !m.Held { // what hosts nothing is held by nobody, and fenced without delay
			continue
		}
		n := nodes[m.Node]
		if n == nil {
			n = &corev1.Node{}
		}
		x := l.holder.Judge(o, n, checks, now)
		why, since := x.Why()
		if since.Equal(now) {
			since = time.Time{} // nobody knows since when, and it would be another one in each look
		}
		s.Patients[m.Node] = patient{Why: why, Since: since, Details: fmt.Sprintf("%s, ready %t, boot %s, Machine %s",
			cmp.Or(x.Condition, "healthy"), x.Ready, x.BootID, m.UID), Held: m.Held}
		if !x.Next.IsZero() && (s.next.IsZero() || x.Next.Before(s.next)) {
			s.next = x.Next
		}
	}
	return s, nil
}

// hosts are the nodes on which pods of the policy's OSDs and mons are, and all nodes by name.
func (r *FencingReconciler) hosts(
	ctx context.Context, p *v1alpha1.MaintenancePolicy,
) (hosts map[string]bool, nodes map[string]*corev1.Node, err error) {
	selectors, err := selectorsOf(p)
	if err != nil {
		return nil, nil, err
	}
	var pods corev1.PodList
	if err := r.Objects.List(ctx, &pods, client.UnsafeDisableDeepCopy, client.InNamespace(p.Namespace)); err != nil {
		return nil, nil, err
	}
	var all corev1.NodeList
	if err := r.Objects.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, err
	}
	hosts, nodes = map[string]bool{}, map[string]*corev1.Node{}
	for i := range all.Items {
		nodes[all.Items[i].Name] = &all.Items[i]
	}
	names := newNodeNames(all.Items)
	for i := range pods.Items {
		pod := &pods.Items[i]
		if is := labels.Set(pod.Labels); selectors.osds.Matches(is) || selectors.daemons[kube.DaemonMon].Matches(is) {
			hosts[names.find(kube.PodNode(pod))] = true
		}
	}
	delete(hosts, "")
	return hosts, nodes, nil
}

// tell starts fences, and tells those that run, and the keeper, what has changed.
func (r *FencingReconciler) tell(ctx context.Context, key storage.ClusterKey, before, now *fenceSight) error {
	if before == nil {
		before = &fenceSight{}
	}
	if !maps.Equal(before.Machines, now.Machines) {
		reason := "Machines changed: " + firstOf(changedKeys(before.Machines, now.Machines))
		if err := r.Temporal.SignalKeeper(ctx, key, workflows.Hint{Reason: reason}); err != nil {
			return err
		}
	}
	for _, node := range slices.Sorted(maps.Keys(now.Patients)) {
		is, was := now.Patients[node], before.Patients[node]
		if is.asTold(was) {
			continue
		}
		wanted := is.Why != fencing.WhyRecovered
		if !wanted && (was.Why == "" || was.Why == fencing.WhyRecovered && is.Details == was.Details) {
			continue
		}
		if err := r.Temporal.SignalFence(ctx, workflows.FenceNodeInput{
			Node: node, Reason: fmt.Sprintf("%s is %s", node, is.Why),
		}, is.Details, wanted); err != nil {
			return err
		}
		r.Log.Info("told the fence of a node", "node", node, "why", is.Why, "details", is.Details)
	}
	for _, node := range slices.Sorted(maps.Keys(before.Patients)) {
		if _, there := now.Patients[node]; !there && before.Patients[node].Why != fencing.WhyRecovered {
			if err := r.Temporal.SignalFence(ctx, workflows.FenceNodeInput{Node: node},
				"its Machine is gone, or its daemons are", false); err != nil {
				return err
			}
		}
	}
	return nil
}

func changedKeys(before, now map[string]string) (out []string) {
	for _, k := range sortedKeys(before, now) {
		if before[k] != now[k] {
			out = append(out, k)
		}
	}
	return out
}

// watchFencing has the watcher look at what fences nodes.
func watchFencing(mgr manager.Manager, r *FencingReconciler) error {
	r.config, r.enqueue = mgr.GetConfig(), make(chan event.GenericEvent, 64)
	all := fencingPolicies(mgr.GetCache())
	return ctrl.NewControllerManagedBy(mgr).
		Named("fencing").
		For(&v1alpha1.MaintenancePolicy{}).
		Watches(&corev1.Node{}, all).
		Watches(&corev1.Pod{}, all).
		WatchesRawSource(source.Channel(r.enqueue, &handler.EnqueueRequestForObject{})).
		WithEventFilter(updatesThat(matters)).
		WithOptions(sideBySide()).
		Complete(r)
}

// fencingPolicies are the policies that name what fences nodes: mostly none.
func fencingPolicies(cached client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) (out []reconcile.Request) {
		opts := []client.ListOption{client.UnsafeDisableDeepCopy}
		if ns := o.GetNamespace(); ns != "" {
			opts = append(opts, client.InNamespace(ns))
		}
		var policies v1alpha1.MaintenancePolicyList
		if err := cached.List(ctx, &policies, opts...); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot list the policies in the cache")
			return nil
		}
		for i := range policies.Items {
			if api := policies.Items[i].Spec.Fencing.API; api != "" && api != v1alpha1.FencingNone {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&policies.Items[i])})
			}
		}
		return out
	})
}
