package starter

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// Reconciler compares what is with what was, one storage cluster at a time, and tells Temporal.
type Reconciler struct {
	Objects  client.Reader // a cache
	Temporal Temporal
	Events   events.EventRecorder
	Log      logr.Logger
	Closer   *Closer // closes before anybody is told of an alarm; nil: nobody does
	Now      func() time.Time

	clusters sync.Map // of *cluster by storage.ClusterKey
	// leftFor is for how many rounds the budgets of a policy that is gone have been there.
	leftFor map[storage.ClusterKey]int
}

// cluster is what the watcher remembers of one storage cluster. Its key is reconciled by one goroutine at a time.
type cluster struct {
	seen    *Snapshot
	pending Actions
	waiting time.Time // since when something is pending that can wait; zero: nothing is
	// asked is when Temporal was last asked about drains for which nobody has a claim, or since when there are any.
	asked time.Time
}

// waits tells for how long what is pending can wait.
func (c *cluster) waits(now time.Time) time.Duration {
	most := c.pending.Patience
	if most == 0 || c.pending.IsZero() || len(c.pending.Drains) > 0 {
		c.waiting = time.Time{}
		return 0
	}
	if c.waiting.IsZero() {
		c.waiting = now
	}
	return c.waiting.Add(most).Sub(now)
}

// Reconcile takes a snapshot of the policy's storage cluster and delivers what the change calls for. What could not be
// delivered is kept, and the error makes the queue come back to it.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := storage.ClusterKey{Namespace: req.Namespace, Name: req.Name}
	objects, err := gather(ctx, r.Objects, req, r.Now())
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, r.forget(ctx, key)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	known, _ := r.clusters.LoadOrStore(key, &cluster{})
	c := known.(*cluster)
	now := Take(objects, c.seen)
	r.complain(objects.Policy, c.seen, now)
	c.pending = c.pending.then(Decide(c.seen, now), now)
	alarm := Alarm(c.seen, now)
	c.seen = &now
	if alarm != "" && r.Closer != nil {
		r.Closer.First(ctx, req)
	}
	if left := c.waits(r.Now()); left > 0 {
		expiry := lookAgain(nextExpiry(now.Nodes), objects.Now).RequeueAfter
		return reconcile.Result{RequeueAfter: min(left, cmp.Or(expiry, left))}, nil
	}
	c.waiting = time.Time{}
	if err := r.deliver(ctx, key, &c.pending); err != nil {
		return reconcile.Result{}, err
	}
	ask, err := r.takeUp(ctx, key, c)
	if err != nil {
		return reconcile.Result{}, err
	}
	out := lookAgain(nextExpiry(now.Nodes), objects.Now)
	if ask > 0 && (out.RequeueAfter == 0 || ask < out.RequeueAfter) {
		out.RequeueAfter = ask
	}
	return out, nil
}

// lookAgain has a reconciler look at a time at which no event tells that something has changed.
func lookAgain(at, now time.Time) reconcile.Result {
	if at.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(at.Sub(now), 100*time.Millisecond)}
}

// gather reads from the cache. It does not copy: ten thousand pods are only looked at.
func gather(ctx context.Context, from client.Reader, req reconcile.Request, now time.Time) (Objects, error) {
	o := Objects{Policy: &v1alpha1.MaintenancePolicy{}, Now: now}
	if err := from.Get(ctx, req.NamespacedName, o.Policy); err != nil {
		return Objects{}, err
	}
	var (
		policies     v1alpha1.MaintenancePolicyList
		nodes        corev1.NodeList
		pods         corev1.PodList
		budgets      policyv1.PodDisruptionBudgetList
		deployments  appsv1.DeploymentList
		statefulSets appsv1.StatefulSetList
	)
	inNamespace := []client.ListOption{client.UnsafeDisableDeepCopy, client.InNamespace(req.Namespace)}
	if err := from.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return Objects{}, fmt.Errorf("list policies in the cache: %w", err)
	}
	for _, list := range []client.ObjectList{&pods, &budgets, &deployments, &statefulSets} {
		if err := from.List(ctx, list, inNamespace...); err != nil {
			return Objects{}, fmt.Errorf("list %T in the cache: %w", list, err)
		}
	}
	if err := from.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return Objects{}, fmt.Errorf("list nodes in the cache: %w", err)
	}
	o.Policies = policies.Items
	o.Nodes, o.Pods, o.Budgets, o.Deployments, o.StatefulSets = nodes.Items, pods.Items, budgets.Items, deployments.Items,
		statefulSets.Items
	return o, nil
}

// forget ends the care for a policy that is gone. If it went without waiting for its keeper, the keeper has to hear of
// it.
func (r *Reconciler) forget(ctx context.Context, key storage.ClusterKey) error {
	known, ok := r.clusters.Load(key)
	if !ok {
		return nil
	}
	if seen := known.(*cluster).seen; seen != nil && !seen.Deleting {
		last := Actions{Hint: workflows.Hint{Reason: "the policy is deleted"}}
		if err := r.deliver(ctx, key, &last); err != nil {
			return err
		}
	}
	r.clusters.Delete(key)
	return nil
}

// complain tells the policy's author about a spec that makes no sense, once.
func (r *Reconciler) complain(p *v1alpha1.MaintenancePolicy, before *Snapshot, now Snapshot) {
	if now.Invalid == "" || before != nil && before.Invalid == now.Invalid {
		return
	}
	r.Log.Info("policy is invalid, its storage cluster is not watched", "policy", p.Namespace+"/"+p.Name,
		"problem", now.Invalid)
	if r.Events != nil {
		r.Events.Eventf(p, nil, corev1.EventTypeWarning, "InvalidSpec", "Watch", "%s", now.Invalid)
	}
}

// deliver does what is pending, the signal first: what it closes is urgent. What is done is taken off.
func (r *Reconciler) deliver(ctx context.Context, key storage.ClusterKey, pending *Actions) error {
	log := r.Log.WithValues("policy", key.String())
	if pending.Hint.Reason != "" {
		if err := r.Temporal.SignalKeeper(ctx, key, pending.Hint); err != nil {
			return err
		}
		log.Info("told the keeper", "reason", pending.Hint.Reason)
		pending.Hint = workflows.Hint{}
	}
	for _, node := range slices.Sorted(maps.Keys(pending.Drains)) {
		why := pending.Drains[node]
		if err := r.Temporal.StartDrain(ctx,
			workflows.DrainNodeInput{Node: node, Policy: key.String(), Reason: why, Observe: true}); err != nil {
			return err
		}
		log.Info("observing a drain from outside", "node", node, "reason", why)
		delete(pending.Drains, node)
	}
	return nil
}

// takeUp has another job observe what is left of a drain that was terminated, and says when to ask again. It asks once
// a minute: mostly the job that drains the node has a claim long before that.
func (r *Reconciler) takeUp(ctx context.Context, key storage.ClusterKey, c *cluster) (time.Duration, error) {
	orphans := Orphans(*c.seen)
	if len(orphans) == 0 {
		c.asked = time.Time{}
		return 0, nil
	}
	if c.asked.IsZero() {
		c.asked = r.Now()
	}
	if left := c.asked.Add(ensureEvery).Sub(r.Now()); left > 0 {
		return left, nil
	}
	for _, node := range slices.Sorted(maps.Keys(orphans)) {
		began, err := r.Temporal.TakeUpDrain(ctx,
			workflows.DrainNodeInput{Node: node, Policy: key.String(), Reason: orphans[node], Observe: true})
		if err != nil {
			return 0, err
		}
		if began {
			r.Log.Info("observing what is left of a drain that was terminated", "policy", key.String(), "node", node,
				"reason", orphans[node])
		}
	}
	c.asked = r.Now()
	return ensureEvery, nil
}

// ensureEvery is how soon a keeper that somebody terminated is back. Until then its last budgets stay.
const ensureEvery = time.Minute

// EnsureKeepers starts the keepers that do not run, again and again until ctx ends, and those that have to take away
// what a policy left. It asks Temporal and the cache only.
func (r *Reconciler) EnsureKeepers(ctx context.Context) error {
	_ = wait.PollUntilContextCancel(ctx, ensureEvery, false, func(ctx context.Context) (bool, error) {
		r.ensureAll(ctx)
		return false, nil
	})
	return nil
}

func (r *Reconciler) ensureAll(ctx context.Context) {
	for known := range r.clusters.Range {
		key := known.(storage.ClusterKey)
		if err := r.Temporal.EnsureKeeper(ctx, key); err != nil && ctx.Err() == nil {
			r.Log.Error(err, "cannot make sure that the keeper runs, trying again in a minute", "policy", key.String())
		}
	}
	r.sweep(ctx)
}
