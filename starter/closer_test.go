package starter

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
)

// ledger writes down what is closed, and may refuse to.
type ledger struct {
	refuses error
	closed  []string
}

func (l *ledger) Close(_ context.Context, p *v1alpha1.MaintenancePolicy, owner string, at time.Time, why string) error {
	if l.refuses == nil {
		l.closed = append(l.closed, p.Name+" by "+owner+": "+why)
	}
	if time.Since(at) > time.Minute {
		return errors.New("the alarm is as old as the last one")
	}
	return l.refuses
}

// take returns what was closed since the last take.
func (l *ledger) take() []string {
	closed := l.closed
	l.closed = nil
	return closed
}

func newCloser(w *world) (closer *Closer, budgets *ledger) {
	budgets = &ledger{}
	return &Closer{Objects: w.client, Budgets: budgets, Log: logr.Discard()}, budgets
}

var ceph = reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "rook-ceph", Name: "ceph"}}

const lost = "ceph by lockkeeper-watcher: osd.1 on node-b is not ready"

func fails(p *corev1.Pod) { p.Status.Conditions = nil }

func TestTheCloserClosesOnceForEachAlarm(t *testing.T) {
	w := newWorld(t)
	closer, budgets := newCloser(w)
	reconciles(t, closer)
	assert.Empty(t, budgets.take(), "at rest")

	edit(w, osdPod(1, "node-b"), fails)
	reconciles(t, closer)
	assert.Equal(t, []string{lost}, budgets.take())
	reconciles(t, closer)
	assert.Empty(t, budgets.take(), "the same one")
}

// TestAnAlarmIsRaisedUntilItLands, even if what it is about has passed in the meantime: the budgets may still be as
// they were.
func TestAnAlarmIsRaisedUntilItLands(t *testing.T) {
	w := newWorld(t)
	closer, budgets := newCloser(w)
	reconciles(t, closer)

	budgets.refuses = errors.New("the API server is away")
	edit(w, osdPod(1, "node-b"), fails)
	for range 2 {
		_, err := closer.Reconcile(t.Context(), ceph)
		require.ErrorIs(t, err, budgets.refuses)
	}
	edit(w, osdPod(1, "node-b"), func(p *corev1.Pod) { p.Status = osdPod(1, "node-b").Status })
	budgets.refuses = nil
	reconciles(t, closer)
	assert.Equal(t, []string{lost}, budgets.take())
	reconciles(t, closer)
	assert.Empty(t, budgets.take())
}

func TestTheCloserTouchesNoBudgetsOfOthers(t *testing.T) {
	w := newWorld(t)
	closer, budgets := newCloser(w)
	edit(w, policyOf(w), func(p *v1alpha1.MaintenancePolicy) { p.Spec.Ceph.ManagePodBudgets = new(false) })
	reconciles(t, closer)
	edit(w, osdPod(1, "node-b"), fails)
	reconciles(t, closer)
	assert.Empty(t, budgets.take(), "managePodBudgets is false")
	edit(w, policyOf(w), func(p *v1alpha1.MaintenancePolicy) { p.Spec.Ceph.ManagePodBudgets = nil })
	reconciles(t, closer)
	assert.Empty(t, budgets.take(), "the keeper begins with closed ones")
}

// TestADeletedPolicyIsForgotten: one that is made anew begins as at a watcher's start.
func TestADeletedPolicyIsForgotten(t *testing.T) {
	w := newWorld(t)
	closer, budgets := newCloser(w)
	reconciles(t, closer)
	policy := policyOf(w)
	require.NoError(t, w.client.Delete(t.Context(), policy))
	edit(w, osdPod(1, "node-b"), fails)
	reconciles(t, closer)
	policy.ResourceVersion = ""
	require.NoError(t, w.client.Create(t.Context(), policy))
	reconciles(t, closer)
	assert.Empty(t, budgets.take())
}

func reconciles(t *testing.T, closer *Closer) {
	t.Helper()
	_, err := closer.Reconcile(t.Context(), ceph)
	require.NoError(t, err)
}

func policyOf(w *world) *v1alpha1.MaintenancePolicy {
	p := &v1alpha1.MaintenancePolicy{}
	require.NoError(w.t, w.client.Get(w.t.Context(), client.ObjectKey{Namespace: "rook-ceph", Name: "ceph"}, p))
	return p
}

// firmly writes what is closed into the list of what Temporal is asked for, when it is let go on.
type firmly struct {
	temporal *recorder
	until    <-chan struct{}
}

func (f firmly) Close(ctx context.Context, p *v1alpha1.MaintenancePolicy, _ string, _ time.Time, why string) error {
	select {
	case <-f.until:
		return f.temporal.did("close %s: %s", p.Name, why)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestClosedBeforeItIsTold: whoever hears of an alarm keeps the API server busy, and the closing would have to share
// with that.
func TestClosedBeforeItIsTold(t *testing.T) {
	w := newWorld(t)
	at := make(chan struct{})
	close(at)
	w.watcher.Closer = &Closer{Objects: w.client, Budgets: firmly{w.temporal, at}, Log: logr.Discard()}
	reconciles(t, w.watcher.Closer)
	assert.Equal(t, []string{started}, w.reconcile())

	edit(w, osdPod(1, "node-b"), fails)
	assert.Equal(t, []string{
		"close ceph: osd.1 on node-b is not ready",
		"signal rook-ceph/ceph: osd.1 on node-b is not ready",
	}, w.reconcile())
	reconciles(t, w.watcher.Closer)
	assert.Empty(t, w.temporal.take(), "its own queue comes to the same change later")
}

// TestToldThoughItCannotBeClosed: an API server that does not answer keeps nobody from the keeper for long, and the
// closer's own queue tries again.
func TestToldThoughItCannotBeClosed(t *testing.T) {
	w := newWorld(t)
	answers := make(chan struct{})
	w.watcher.Closer = &Closer{Objects: w.client, Budgets: firmly{w.temporal, answers}, Log: logr.Discard()}
	reconciles(t, w.watcher.Closer)
	w.reconcile()

	edit(w, osdPod(1, "node-b"), fails)
	assert.Equal(t, []string{"signal rook-ceph/ceph: osd.1 on node-b is not ready"}, w.reconcile())
	close(answers)
	reconciles(t, w.watcher.Closer)
	assert.Equal(t, []string{"close ceph: osd.1 on node-b is not ready"}, w.temporal.take())
}
