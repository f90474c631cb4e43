package api

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/starter"
	"github.com/lockkeeper/lockkeeper/test/apiserver"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// told is a Temporal that remembers what keepers were told, and why rollouts were signalled.
type told struct {
	mu      sync.Mutex
	hints   []workflows.Hint
	reasons []string
	waits   []string // what the restart of what waits was told
	fences  []string // whom a fence was told of, and whether it is to begin
}

func (t *told) SignalKeeper(_ context.Context, _ storage.ClusterKey, h workflows.Hint) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hints = append(t.hints, h)
	return nil
}

// hint is the last one.
func (t *told) hint() workflows.Hint {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.hints) == 0 {
		return workflows.Hint{}
	}
	return t.hints[len(t.hints)-1]
}

// heard tells whether any hint was so.
func (t *told) heard(is func(workflows.Hint) bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.hints, is)
}

func (t *told) EnsureKeeper(context.Context, storage.ClusterKey) error { return nil }

func (t *told) RestartKeeper(context.Context, storage.ClusterKey) error { return nil }

func (t *told) Kept(context.Context, storage.ClusterKey) (workflows.Kept, error) {
	return workflows.Kept{OK: true}, nil
}

func (t *told) StartDrain(context.Context, workflows.DrainNodeInput) error { return nil }

func (t *told) TakeUpDrain(context.Context, workflows.DrainNodeInput) (bool, error) {
	return false, nil
}

func (t *told) SignalScaleDown(context.Context, workflows.ScaleDownNodeInput, string) error {
	return nil
}

func (t *told) SignalMons(context.Context, string, string, string) error { return nil }

func (t *told) SignalRollout(_ context.Context, namespace, name, reason string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reasons = append(t.reasons, namespace+"/"+name+": "+reason)
	return nil
}

func (t *told) SignalWaiting(_ context.Context, key storage.ClusterKey, reason string, start bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waits = append(t.waits, fmt.Sprintf("%s, start %t: %s", key, start, reason))
	return nil
}

func (t *told) waiting() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.waits)
}

func (t *told) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.reasons)
}

// runningWatcher is a watcher, and what it tells Temporal.
type runningWatcher struct {
	*told
	ended chan error
	stop  func()
}

// startWatcher runs a watcher until it is stopped.
func startWatcher(t *testing.T, cfg *rest.Config, opts starter.Options) runningWatcher {
	t.Helper()
	w := runningWatcher{told: &told{}, ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	opts.Log = logr.Discard()
	go func() { w.ended <- starter.Run(ctx, cfg, w.told, opts) }()
	w.stop = func() {
		cancel()
		require.NoError(t, <-w.ended)
	}
	return w
}

// TestTheWatcherTellsRollouts what others did, and not what lockkeeper did itself: the API server knows who wrote what.
func TestTheWatcherTellsRollouts(t *testing.T) {
	p := newOSDPods(t, "watched")
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{corev1.LabelHostname: "a"}},
		Spec:       corev1.NodeSpec{Unschedulable: true},
	}
	create(t, node)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	require.NoError(t, server.Status().Update(t.Context(), node))
	apply(t, filepath.Join(*root, "deploy", "rbac.yaml"), "") // the watcher runs with its own rights, and no others
	watcher := startWatcher(t, asAccount(config, "lockkeeper-watcher"), starter.Options{Namespace: "watched"})
	defer watcher.stop()
	temporal := watcher.told
	heard := 0
	expect := func(reason string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			all := temporal.all()
			if assert.Len(c, all, heard+1, "%q", all) {
				assert.Contains(c, all[heard], reason)
			}
		}, apiserver.Patience, 20*time.Millisecond, reason)
		heard++
	}
	lockkeeper, kubectl := client.FieldOwner(kube.FieldOwner), client.FieldOwner("kubectl-annotate")
	annotate := func(as client.FieldOwner, value string) {
		t.Helper()
		patch := `{"metadata":{"annotations":{"` + podspec.StateAnnotation + `":` + value + `}}}`
		require.NoError(t, server.Patch(t.Context(), p.pod(), client.RawPatch(types.MergePatchType, []byte(patch)), as))
	}

	expect("watched/osds: generation 1 was not looked at yet")
	pod := p.set.Render(p.osd, podspec.Knowledge{})
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
	again := p.set.Render(p.osd, podspec.Knowledge{})
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

// TestTheWatcherTellsEchoes: the keeper knows its own writes by the generations that the API server gave them, and
// needs no look for these. What somebody else wrote is news.
func TestTheWatcherTellsEchoes(t *testing.T) {
	t.Parallel()
	const ns = "echoes"
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	p := policy(t, "rook-ceph", `{ceph: {}}`)
	p.SetNamespace(ns)
	create(t, p)
	cluster, err := kube.New(config)
	require.NoError(t, err)
	apply(t, filepath.Join(*root, "deploy", "rbac.yaml"), "") // the watcher runs with its own rights, and no others
	apply(t, filepath.Join(*root, "deploy", "storage-namespace.yaml"), ns)
	watcher := startWatcher(t, asAccount(config, "lockkeeper-watcher"), starter.Options{Namespace: ns})
	defer watcher.stop()
	temporal := watcher.told
	expect := func(what string, is func(workflows.Hint) bool) {
		t.Helper()
		require.Eventually(t, func() bool { return is(temporal.hint()) }, apiserver.Patience, 20*time.Millisecond, "%s: %+v",
			what, temporal.hint())
	}
	expect("the watcher started", func(h workflows.Hint) bool { return h.Reason != "" })
	key := storage.ClusterKey{Namespace: ns, Name: "rook-ceph"}
	write := func(minAvailable int) activities.BudgetResult {
		t.Helper()
		least := budget.Spec{MinAvailable: minAvailable}
		r, err := cluster.ApplyBudgets(t.Context(),
			activities.BudgetInput{Cluster: key, Specs: budget.Specs{Daemons: least, Unproved: &least, Mons: &least}})
		require.NoError(t, err)
		return r
	}
	write(2)
	expect("a budget that appears is news",
		func(h workflows.Hint) bool { return strings.Contains(h.Reason, "appeared") && !h.IsEcho() })
	for n := 3; n < 5; n++ {
		was := temporal.hint()
		r := write(n)
		osds, proved := r.Book[budget.Unmarked].Generation, r.Book[budget.Marked].Generation
		mons := r.Book[budget.OfMons].Generation
		require.Positive(t, osds)
		require.Positive(t, mons)
		expect("our own write", func(h workflows.Hint) bool {
			return h != was && (h.Echo == osds || h.ProvedEcho == proved || h.MonEcho == mons) &&
				h.Echo <= osds && h.ProvedEcho <= proved && h.MonEcho <= mons
		})
	}
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: kube.DaemonBudgetName("rook-ceph")},
	}
	require.NoError(t, server.Patch(t.Context(), pdb,
		client.RawPatch(types.MergePatchType, []byte(`{"spec":{"minAvailable":0}}`)), client.FieldOwner("kubectl-edit")))
	// The watcher closes at once, which is news, too; so it may not be the last hint.
	require.Eventually(t, func() bool {
		return temporal.heard(func(h workflows.Hint) bool { return h.Tampered && !h.IsEcho() })
	}, apiserver.Patience, 20*time.Millisecond, "somebody else's write")
	require.Eventually(t, func() bool {
		return server.Get(t.Context(), client.ObjectKeyFromObject(pdb), pdb) == nil &&
			pdb.Spec.MinAvailable.IntValue() == budget.Everything
	}, apiserver.Patience, 20*time.Millisecond, "closed, although no keeper runs")
	require.Contains(t, pdb.Annotations[kube.AlarmAnnotation], "was changed or deleted")
}

// report writes the status, as the rollout would.
func report(t *testing.T, p *osdPods, upToDate metav1.ConditionStatus) {
	t.Helper()
	cr := &cephv1alpha1.CephOSD{}
	require.NoError(t, server.Get(t.Context(), client.ObjectKey{Namespace: p.ns, Name: "osds"}, cr))
	cr.Status.ObservedGeneration = cr.Generation
	cr.Status.Conditions = []metav1.Condition{{
		Type: cephv1alpha1.ConditionUpToDate, Status: upToDate, Reason: "Test",
		LastTransitionTime: metav1.Now(),
	}}
	require.NoError(t, server.Status().Update(t.Context(), cr, client.FieldOwner(kube.FieldOwner)))
}
