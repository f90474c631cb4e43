package starter

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// Options of the watcher. The zero value watches all namespaces, without leader election and without any open port.
type Options struct {
	// Namespace restricts the watcher to the policies of one namespace. "": all.
	Namespace string
	// LeaderElection lets several watchers run of which one works; LeaderElectionNamespace is where their Lease is.
	LeaderElection          bool
	LeaderElectionNamespace string
	// HealthAddress serves /healthz and /readyz, MetricsAddress /metrics. "" or "0": not at all.
	HealthAddress  string
	MetricsAddress string
	Log            logr.Logger
}

// LeaseName is the Lease that the leading watcher holds.
const LeaseName = kube.WatcherLease

// How long the watchers of a dead leader wait, and how often a living one renews. Two leaders for a moment do no harm,
// since all that they do may be done twice, so the wait is shorter than is usual.
const (
	leaseDuration = 8 * time.Second
	renewDeadline = 5 * time.Second
	renewEvery    = 2 * time.Second
)

// Pauses between two attempts to deliver while Temporal is away.
const (
	retryAfterMin = 50 * time.Millisecond
	retryAfterMax = 5 * time.Second
)

// concurrency is how many storage clusters are looked at side by side: one whose signal hangs must not hold up others.
const concurrency = 8

// Run watches until ctx ends. It waits for its caches and, with leader election, for its turn. One that loses the
// Lease, since the API server did not answer for a while, stands for it again: to end would be to leave it to the
// kubelet, which waits the longer the more often that happens, when it comes back.
func Run(ctx context.Context, cfg *rest.Config, temporal Temporal, opts Options) error {
	log := opts.Log.WithValues("namespace", opts.LeaderElectionNamespace, "lease", LeaseName)
	return standAgain(ctx, log, func(again bool) error { return runOnce(ctx, cfg, temporal, opts, again) })
}

// standAgain runs a watcher as often as it loses the Lease. The next one may not even get as far as that, while the API
// server is still away. once is told whether it is not the first time.
func standAgain(ctx context.Context, log logr.Logger, once func(again bool) error) error {
	for stood := false; ; {
		err := once(stood)
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case strings.Contains(err.Error(), leaseLost):
			log.Info("lost the Lease, and stand for it again")
			stood = true
		case stood:
			log.Error(err, "cannot stand for the Lease again yet", "again", renewEvery.String())
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(renewEvery): // what the last one served is closed by then
		}
	}
}

// leaseLost is what a manager says that has lost its Lease. It has no other name for it.
const leaseLost = "leader election lost"

// runOnce watches until ctx ends, or until somebody else leads. again: it has done so before, so that an API server
// that does not answer is away, and not one that was never there. Then it says that it is healthy meanwhile, or the
// kubelet would start it anew, later each time.
func runOnce(ctx context.Context, cfg *rest.Config, temporal Temporal, opts Options, again bool) error {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = kube.FieldOwner + "-watcher"
	cfg.QPS = -1 // the server's own priority and fairness limits us
	budgets, err := kube.New(cfg)
	if err != nil {
		return fmt.Errorf("set up the watcher: %w", err)
	}
	// What may fail comes before the manager: it listens from its beginning on, and only one that has run lets go of that.
	known, err := askForKinds(cfg)
	if err != nil && !again {
		return fmt.Errorf("set up the watcher: %w", err)
	}
	mgr, err := manager.New(cfg, managerOptions(opts))
	if err != nil {
		return fmt.Errorf("set up the watcher: %w", err)
	}
	closer := &Closer{Objects: mgr.GetCache(), Budgets: budgets, Log: opts.Log}
	r := &Reconciler{
		Objects: mgr.GetCache(), Temporal: temporal, Events: mgr.GetEventRecorder("lockkeeper-watcher"),
		Log: opts.Log, Closer: closer, Now: time.Now,
	}
	if err := register(mgr, r); err != nil {
		return fmt.Errorf("set up the watcher: %w", err)
	}
	everyone := sideBySide()
	everyone.NeedLeaderElection = new(false)
	if err := watchStorage(mgr, "closer", closer, everyone); err != nil {
		return fmt.Errorf("set up the watcher: %w", err)
	}
	auditor := &Auditor{Objects: mgr.GetCache(), Temporal: temporal, Statuses: budgets, Log: opts.Log}
	if err := mgr.Add(manager.RunnableFunc(auditor.Run)); err != nil {
		// runs on the leader only: two might not agree on who answers
		return fmt.Errorf("set up the watcher: %w", err)
	}
	wishes := &WishReconciler{Objects: mgr.GetCache(), Temporal: temporal, Log: opts.Log}
	if err := watchWishes(mgr, wishes); err != nil {
		return fmt.Errorf("set up the watcher: %w", err)
	}
	if err := watchOSDSets(mgr, known, &OSDSetReconciler{
		Objects: mgr.GetCache(), Temporal: temporal, Log: opts.Log, Now: time.Now,
		Known: func() error { return wishes.watchCephOSDs(mgr) },
	}); err != nil {
		return fmt.Errorf("set up the watcher: %w", err)
	}
	if err := watchFencing(mgr, &FencingReconciler{
		Objects: mgr.GetCache(), Temporal: temporal, Log: opts.Log, Now: time.Now,
	}); err != nil {
		return fmt.Errorf("set up the watcher: %w", err)
	}
	if err := watchLeaving(mgr, &LeavingReconciler{
		Objects: mgr.GetCache(), Homes: HomesIn(mgr.GetCache()), Temporal: temporal, Log: opts.Log, Now: time.Now,
	}); err != nil {
		return fmt.Errorf("set up the watcher: %w", err)
	}
	mons := &MonReconciler{Objects: mgr.GetCache(), Temporal: temporal, Log: opts.Log}
	if err := watchMons(mgr, known, mons); err != nil {
		return fmt.Errorf("set up the watcher: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	return nil
}

// kinds are which of the kinds that not every cluster has an API server knows.
type kinds struct {
	cephOSDs, cephMons bool
	away               bool // it did not answer
}

// askForKinds asks an API server what it knows. One that hangs is away.
func askForKinds(cfg *rest.Config) (kinds, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = renewDeadline
	server, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return kinds{}, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(cfg, server)
	if err != nil {
		return kinds{}, err
	}
	osds, err := knowsCephOSDs(mapper)
	if err != nil {
		return kinds{away: true}, err
	}
	mons, err := knowsCephMons(mapper)
	return kinds{cephOSDs: osds, cephMons: mons, away: err != nil}, err
}

func managerOptions(o Options) manager.Options {
	lease, deadline, retry := leaseDuration, renewDeadline, renewEvery
	out := manager.Options{
		Scheme: kube.Scheme, Logger: o.Log,
		Cache:          cache.Options{DefaultTransform: strip},
		LeaderElection: o.LeaderElection, LeaderElectionNamespace: o.LeaderElectionNamespace, LeaderElectionID: LeaseName,
		LeaderElectionReleaseOnCancel: true, LeaseDuration: &lease, RenewDeadline: &deadline, RetryPeriod: &retry,
		// several watchers in one process are one in its metrics
		Controller:             config.Controller{SkipNameValidation: new(true)},
		HealthProbeBindAddress: o.HealthAddress, Metrics: metricsserver.Options{BindAddress: cmp.Or(o.MetricsAddress, "0")},
	}
	if o.Namespace != "" {
		out.Cache.DefaultNamespaces = map[string]cache.Config{o.Namespace: {}}
	}
	return out
}

// watchStorage has a reconciler look at each policy whose storage cluster may have changed.
func watchStorage(mgr manager.Manager, name string, r reconcile.Reconciler, opts controller.Options) error {
	ofNamespace, all := policiesOf(mgr.GetCache(), true), policiesOf(mgr.GetCache(), false)
	return ctrl.NewControllerManagedBy(mgr).
		Named(name).
		For(&v1alpha1.MaintenancePolicy{}).
		// one may be in charge of another's storage cluster, whatever their namespaces
		Watches(&v1alpha1.MaintenancePolicy{}, all).
		Watches(&corev1.Pod{}, ofNamespace).
		Watches(&policyv1.PodDisruptionBudget{}, ofNamespace).
		Watches(&appsv1.Deployment{}, ofNamespace).
		Watches(&appsv1.StatefulSet{}, ofNamespace).
		Watches(&corev1.Node{}, all).
		WithEventFilter(updatesThat(matters)).
		WithOptions(opts).
		Complete(r)
}

func register(mgr manager.Manager, r *Reconciler) error {
	if err := watchStorage(mgr, "watcher", r, sideBySide()); err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(r.EnsureKeepers)); err != nil { // runs on the leader only
		return err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	return mgr.AddReadyzCheck("ping", healthz.Ping)
}

// policiesOf maps an object to the policies that it may concern: those of its namespace, or all. Whether it does is for
// the snapshot to tell; there are few policies in a namespace, and most namespaces have none.
func policiesOf(cached client.Reader, sameNamespace bool) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		opts := []client.ListOption{client.UnsafeDisableDeepCopy}
		if sameNamespace {
			opts = append(opts, client.InNamespace(o.GetNamespace()))
		}
		var policies v1alpha1.MaintenancePolicyList
		if err := cached.List(ctx, &policies, opts...); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot list the policies in the cache")
			return nil
		}
		out := make([]reconcile.Request, len(policies.Items))
		for i := range policies.Items {
			out[i].NamespacedName = types.NamespacedName{Namespace: policies.Items[i].Namespace, Name: policies.Items[i].Name}
		}
		return out
	})
}

// sideBySide are the options of each controller of the watcher.
func sideBySide() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: concurrency,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryAfterMin,
			retryAfterMax),
	}
}

// updatesThat lets all events pass but updates that do not matter.
func updatesThat(matter func(before, now client.Object) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return matter(e.ObjectOld, e.ObjectNew) }}
}

// matters tells whether an update may change a snapshot. The cached objects hold little else than what does, but for
// their version; and of a policy's status only the claim to its storage cluster matters, to the keepers of others.
func matters(before, now client.Object) bool {
	if p, ok := now.(*v1alpha1.MaintenancePolicy); ok {
		was, is := before.(*v1alpha1.MaintenancePolicy)
		return p.Generation != before.GetGeneration() ||
			p.DeletionTimestamp.IsZero() != before.GetDeletionTimestamp().IsZero() ||
			!is || !maps.Equal(drainsOf(p.Status.Lease), drainsOf(was.Status.Lease)) ||
			!reflect.DeepEqual(p.Status.Ceph, was.Status.Ceph) ||
			!reflect.DeepEqual(p.Status.Longhorn, was.Status.Longhorn) ||
			!reflect.DeepEqual(kube.FencingInForce(p), kube.FencingInForce(was))
	}
	return !reflect.DeepEqual(unversioned(before), unversioned(now))
}

func unversioned(o client.Object) client.Object {
	c, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return o
	}
	c.SetResourceVersion("")
	return c
}
