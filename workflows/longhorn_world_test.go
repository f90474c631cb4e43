package workflows_test

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/longhorn/longhorncluster"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/starter"
	"github.com/lockkeeper/lockkeeper/test/sim/longhorn"
	"github.com/lockkeeper/lockkeeper/worker"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file puts lockkeeper's own adapters and its own watcher in front of a simulated Longhorn.

// longhornAdapters are those that the worker has, in front of a simulated Longhorn. close ends their watches.
func longhornAdapters(w *longhorn.World, a *worker.Adapters) (stop func()) {
	k := w.Kubernetes()
	clusters := longhorncluster.NewClusters(k, w.Objects(), w.NewCache)
	a.Policies, a.Budgets, a.Nodes = k, k, k
	a.Clusters = &worker.Kinds{Policies: k, Of: map[storage.Kind]activities.StorageClusters{storage.Longhorn: clusters}}
	return clusters.Close
}

// longhornWatcher is the watcher: its own reconcilers, told of every change.
type longhornWatcher struct {
	*scene
	w       *longhorn.World
	mu      sync.Mutex
	changed chan struct{}
	stop    context.CancelFunc
}

func (s *scene) watchLonghorn(w *longhorn.World) *longhornWatcher {
	l := &longhornWatcher{scene: s, w: w, changed: make(chan struct{})}
	w.OnKubernetes(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		close(l.changed)
		l.changed = make(chan struct{})
	})
	return l
}

// run starts the watcher, which knows nothing then, or kills it.
func (l *longhornWatcher) run(on bool) {
	ctx, stop := context.WithCancel(context.Background())
	l.mu.Lock()
	before := l.stop
	l.stop = stop
	l.mu.Unlock()
	if before != nil {
		before()
	}
	l.w.Watched(on)
	if !on {
		stop()
		return
	}
	temporal, cache, log := longhornTemporal{scene: l.scene}, l.w.Cache(), logr.Discard()
	closer := &starter.Closer{Objects: cache, Budgets: l.w.AsWatcher(), Log: log}
	keeper := &starter.Reconciler{Objects: cache, Temporal: temporal, Log: log, Closer: closer, Now: time.Now}
	leaving := &starter.LeavingReconciler{
		Objects: cache, Homes: starter.HomesIn(cache), Temporal: temporal, Log: log, Now: time.Now,
	}
	policy := func() []string { return []string{longhorn.Key.Name} }
	go l.reconcile(ctx, longhorn.Key.Namespace, policy, closer)
	go l.reconcile(ctx, longhorn.Key.Namespace, policy, keeper)
	go l.reconcile(ctx, "", l.nodes(), leaving)
	go func() { _ = keeper.EnsureKeepers(ctx) }()
}

// nodes are those that there are, or have been.
func (l *longhornWatcher) nodes() func() []string {
	seen := map[string]bool{}
	return func() (all []string) {
		for _, name := range l.w.Nodes() {
			seen[name] = true
		}
		for name := range seen {
			all = append(all, name)
		}
		return all
	}
}

// reconcile has a reconciler look at objects whenever anything has changed, when it asks to, and again after an error.
func (l *longhornWatcher) reconcile(
	ctx context.Context, namespace string, names func() []string, r reconcile.Reconciler,
) {
	const longest = time.Hour
	failures := 0
	for ctx.Err() == nil && !l.isOver() {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		next, failed := longest, false
		for _, name := range names() {
			result, err := r.Reconcile(ctx, reconcile.Request{
				NamespacedName: types.NamespacedName{Namespace: namespace, Name: name},
			})
			failed = failed || err != nil
			if after := result.RequeueAfter; after > 0 {
				next = min(next, after)
			}
		}
		if failures++; !failed {
			failures = 0
		} else {
			next = min(next, 50*time.Millisecond<<min(failures, 7))
		}
		select {
		case <-changed:
		case <-time.After(next):
		case <-ctx.Done():
		}
		time.Sleep(10 * time.Millisecond) // until its cache has it
	}
}

// longhornTemporal is Temporal as the watcher reaches it.
type longhornTemporal struct {
	starter.Temporal
	scene *scene
}

// SignalKeeper implements starter.Temporal.
func (t longhornTemporal) SignalKeeper(_ context.Context, key storage.ClusterKey, hint workflows.Hint) error {
	t.scene.startKeeperOf(key)
	t.scene.signal(workflows.KeeperID(key), workflows.SignalStorageChanged, hint)
	return nil
}

// EnsureKeeper implements starter.Temporal.
func (t longhornTemporal) EnsureKeeper(_ context.Context, key storage.ClusterKey) error {
	t.scene.startKeeperOf(key)
	return nil
}

// SignalScaleDown implements starter.Temporal.
func (t longhornTemporal) SignalScaleDown(_ context.Context, in workflows.ScaleDownNodeInput, why string) error {
	id := jobs.ScaleDownNode.ID(in.Node)
	if !t.scene.runs(id) {
		t.scene.Tell("the watcher starts %s: %s", id, why)
	}
	t.scene.start(id, jobs.ScaleDownNode.Type, in)
	t.scene.signal(id, workflows.SignalNodeLeaving, why)
	return nil
}
