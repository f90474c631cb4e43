package api

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/osdpod"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/starter"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// told is a Temporal that remembers why rollouts were signalled.
type told struct {
	mu      sync.Mutex
	reasons []string
}

func (t *told) SignalKeeper(context.Context, storage.ClusterKey, workflows.Hint) error { return nil }

func (t *told) EnsureKeeper(context.Context, storage.ClusterKey) error { return nil }

func (t *told) StartDrain(context.Context, workflows.DrainNodeInput) error { return nil }

func (t *told) SignalRollout(_ context.Context, namespace, name, reason string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reasons = append(t.reasons, namespace+"/"+name+": "+reason)
	return nil
}

func (t *told) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.reasons)
}

// TestTheWatcherTellsRollouts what others did, and not what lockkeeper did itself: the API server knows who wrote what.
func TestTheWatcherTellsRollouts(t *testing.T) {
	p := newOSDPods(t, "watched")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{corev1.LabelHostname: "a"}}, Spec: corev1.NodeSpec{Unschedulable: true}}
	create(t, node)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	require.NoError(t, server.Status().Update(t.Context(), node))
	temporal := &told{}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- starter.Run(ctx, config, temporal, starter.Options{Namespace: "watched", Log: logr.Discard()})
	}()
	defer func() {
		stop()
		require.NoError(t, <-ended)
	}()
	heard := 0
	expect := func(reason string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			all := temporal.all()
			if assert.Len(c, all, heard+1, "%q", all) {
				assert.Contains(c, all[heard], reason)
			}
		}, 20*time.Second, 20*time.Millisecond, reason)
		heard++
	}
	lockkeeper, kubectl := client.FieldOwner(kube.FieldOwner), client.FieldOwner("kubectl-annotate")
	annotate := func(as client.FieldOwner, value string) {
		t.Helper()
		patch := `{"metadata":{"annotations":{"` + osdpod.StateAnnotation + `":` + value + `}}}`
		require.NoError(t, server.Patch(t.Context(), p.pod(), client.RawPatch(types.MergePatchType, []byte(patch)), as))
	}

	expect("watched/osds: generation 1 was not looked at yet")
	pod := p.set.Render(p.osd, osdpod.Knowledge{})
	require.NoError(t, server.Create(t.Context(), pod, lockkeeper))
	report(t, p, metav1.ConditionTrue)
	p.template("example.org/other")
	expect("the spec changed")
	report(t, p, metav1.ConditionTrue)

	annotate(lockkeeper, `"unready"`)
	annotate(kubectl, `"up-to-date"`)
	expect(`somebody wrote the state "up-to-date" on pod`)
	annotate(lockkeeper, `"ready"`)
	annotate(kubectl, `null`)
	expect(`somebody wrote the state "" on pod`)
	annotate(lockkeeper, `"up-to-date"`)

	node.Spec.Unschedulable = false
	require.NoError(t, server.Update(t.Context(), node))
	expect("host a is in service again")

	// A replacement by a rollout at work: gone, and there again within the grace.
	report(t, p, metav1.ConditionFalse)
	gone := client.GracePeriodSeconds(0)
	require.NoError(t, server.Delete(t.Context(), p.pod(), gone))
	again := p.set.Render(p.osd, osdpod.Knowledge{})
	require.NoError(t, server.Create(t.Context(), again, lockkeeper))
	report(t, p, metav1.ConditionTrue)
	// And by somebody else, when none is at work.
	time.Sleep(time.Second) // until the watcher has seen that
	require.NoError(t, server.Delete(t.Context(), p.pod(), gone))
	expect("a:/dev/sdb has no pod")
	for _, reason := range temporal.all() {
		assert.False(t, strings.Contains(reason, "appeared"), reason)
	}
}

// report writes the status, as the rollout would.
func report(t *testing.T, p *osdPods, upToDate metav1.ConditionStatus) {
	t.Helper()
	cr := &cephv1alpha1.CephOSD{}
	require.NoError(t, server.Get(t.Context(), client.ObjectKey{Namespace: p.ns, Name: "osds"}, cr))
	cr.Status.ObservedGeneration = cr.Generation
	cr.Status.Conditions = []metav1.Condition{{Type: cephv1alpha1.ConditionUpToDate, Status: upToDate, Reason: "Test", LastTransitionTime: metav1.Now()}}
	require.NoError(t, server.Status().Update(t.Context(), cr, client.FieldOwner(kube.FieldOwner)))
}
