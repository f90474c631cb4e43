package starter

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// Statuses is what the watcher changes in the status of a policy.
type Statuses interface {
	// Disown writes that nobody has kept the status up to date since some moment, and why.
	Disown(ctx context.Context, p *v1alpha1.MaintenancePolicy, since time.Time, why string) error
}

// Auditor sees to it that a policy's status which nobody keeps up to date says so. It asks the keepers, by way of
// Temporal, and leaves no trace there; the API server hears of it only when something is to be written.
type Auditor struct {
	Objects  client.Reader // a cache
	Temporal Temporal
	Statuses Statuses
	Log      logr.Logger

	mu      sync.Mutex
	keeping map[storage.ClusterKey]Keeping
}

// Run audits until ctx ends.
func (a *Auditor) Run(ctx context.Context) error {
	wait.NonSlidingUntilWithContext(ctx, a.Audit, askEvery)
	return nil
}

// mostAsked is how many keepers are asked side by side: while nobody answers, each takes as long as it may.
const mostAsked = 64

// Audit asks every keeper once, and does what is to be done.
func (a *Auditor) Audit(ctx context.Context) {
	var policies v1alpha1.MaintenancePolicyList
	if err := a.Objects.List(ctx, &policies); err != nil {
		a.Log.Error(err, "cannot list the policies in the cache")
		return
	}
	a.forgetAllBut(policies.Items)
	var all errgroup.Group
	all.SetLimit(mostAsked)
	for i := range policies.Items {
		all.Go(func() error { a.audit(ctx, client.ObjectKeyFromObject(&policies.Items[i])); return nil })
	}
	_ = all.Wait() // each has logged what failed
}

// disownAgain is how a write is tried again that failed: the next answer of nobody is many seconds away.
var disownAgain = wait.Backoff{Duration: 250 * time.Millisecond, Factor: 3, Jitter: 0.1, Steps: 4}

func (a *Auditor) audit(ctx context.Context, name client.ObjectKey) {
	key := storage.ClusterKey{Namespace: name.Namespace, Name: name.Name}
	asked := time.Now()
	answer, err := a.Temporal.Kept(ctx, key)
	if ctx.Err() != nil {
		return // nobody was asked to the end
	}
	var p v1alpha1.MaintenancePolicy
	if err := a.Objects.Get(ctx, name, &p); err != nil { // after the answer: it may have taken long
		return
	}
	a.mu.Lock()
	k := a.keeping[key].Heard(asked, answer, err)
	a.mu.Unlock()
	now := time.Now()
	r := k.Remedy(now, p.Status)
	log := a.Log.WithValues("policy", key.String())
	var failed error
	switch r {
	case Leave:
	case Disown:
		since := k.Since(p.Status)
		failed = retry.OnError(disownAgain, func(err error) bool { return ctx.Err() == nil && !apierrors.IsConflict(err) },
			func() error {
				return a.Statuses.Disown(ctx, &p, since, k.Why)
			})
		if failed == nil {
			log.Info("nobody keeps the policy's status up to date, and it says so now", "since", since, "reason", k.Why)
		}
	case Recall:
		failed = a.Temporal.SignalKeeper(ctx, key, workflows.Hint{Reason: "the status says " + kube.NotKept, Disowned: true})
	case Restart:
		if failed = a.Temporal.RestartKeeper(ctx, key); failed == nil {
			log.Info("started the keeper anew", "reason", k.Why)
		}
	}
	if apierrors.IsConflict(failed) { // somebody has written it: the next look is at what it says now
		failed, r = nil, Leave
	}
	if failed != nil {
		log.Error(failed, "could not "+string(r)+", trying again")
		r = Leave
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keeping[key] = k.Done(now, r)
}

// forgetAllBut keeps nothing of policies that are gone.
func (a *Auditor) forgetAllBut(policies []v1alpha1.MaintenancePolicy) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kept := map[storage.ClusterKey]Keeping{}
	for i := range policies {
		key := storage.ClusterKey{Namespace: policies[i].Namespace, Name: policies[i].Name}
		kept[key] = a.keeping[key]
	}
	a.keeping = kept
}
