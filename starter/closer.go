package starter

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Budgets is all that the watcher changes in Kubernetes.
type Budgets interface {
	// Close closes the budgets of a policy, and writes on them when and why.
	Close(ctx context.Context, p *v1alpha1.MaintenancePolicy, owner string, at time.Time, why string) error
}

// Closer closes by itself. Every watcher does, whoever leads: closing is always safe, and neither a busy keeper nor a
// Temporal that is away may delay it. Only the keeper opens.
type Closer struct {
	Objects client.Reader // a cache
	Budgets Budgets
	Log     logr.Logger

	clusters sync.Map // of *watched by storage.ClusterKey
}

// watched is what the closer remembers of one storage cluster.
type watched struct {
	turn chan struct{} // has room for one who looks: the closer's own queue, or whoever calls First
	seen *Snapshot
	why  string // an alarm that could not be raised yet
}

// firstWithin bounds how long a signal waits for the budgets to be closed.
const firstWithin = 500 * time.Millisecond

// First closes now, if there is a reason, or waits until it is done. Whoever hears of an alarm asks the API server and
// Ceph a lot at once, and the closing would have to share with that. What fails is tried again by the closer itself,
// which hears of the same change.
func (c *Closer) First(ctx context.Context, req reconcile.Request) {
	ctx, cancel := context.WithTimeout(ctx, firstWithin)
	defer cancel()
	_, _ = c.Reconcile(ctx, req)
}

// Reconcile compares what is with what was, and raises the alarm if there is one, again and again until it lands.
func (c *Closer) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := storage.ClusterKey{Namespace: req.Namespace, Name: req.Name}
	known, _ := c.clusters.LoadOrStore(key, &watched{turn: make(chan struct{}, 1)})
	w := known.(*watched)
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return reconcile.Result{}, ctx.Err()
	}
	objects, err := gather(ctx, c.Objects, req, time.Now())
	if apierrors.IsNotFound(err) {
		c.clusters.Delete(key)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	now := Take(objects, w.seen)
	if why := Alarm(w.seen, now); why != "" {
		w.why = why
	}
	w.seen = &now
	if w.why == "" || !kube.Settings(&objects.Policy.Spec).ManagePodBudgets {
		w.why = ""
		return reconcile.Result{}, nil
	}
	if err := c.Budgets.Close(ctx, objects.Policy, kube.WatcherOwner, time.Now(), w.why); err != nil {
		return reconcile.Result{}, err
	}
	c.Log.Info("closed the budgets", "policy", key.String(), "reason", w.why)
	w.why = ""
	return reconcile.Result{}, nil
}
