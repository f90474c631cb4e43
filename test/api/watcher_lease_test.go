package api

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/starter"
	"github.com/lockkeeper/lockkeeper/test/apiserver"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TestTheWatcherStandsAgain: one that has lost the Lease does not end, and watches as before when it has it again.
func TestTheWatcherStandsAgain(t *testing.T) {
	t.Parallel()
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elected"}})
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	health := free.Addr().String()
	require.NoError(t, free.Close())
	const thief = "thief"
	watcher := startWatcher(t, config, starter.Options{
		Namespace: "elected", LeaderElection: true, LeaderElectionNamespace: "elected", HealthAddress: health,
	})
	defer watcher.stop()
	temporal := watcher.told
	var lease *coordinationv1.Lease
	holder := func() string {
		lease = &coordinationv1.Lease{}
		err := server.Get(t.Context(), client.ObjectKey{Namespace: "elected", Name: starter.LeaseName}, lease)
		if err != nil || lease.Spec.HolderIdentity == nil {
			return ""
		}
		return *lease.Spec.HolderIdentity
	}
	require.Eventually(t, func() bool { return holder() != "" }, apiserver.Patience, 50*time.Millisecond)
	first := holder()
	require.Eventually(t, func() bool {
		holder()
		thief, longer, now := thief, int32(8), metav1.NowMicro() // than the leader tries to renew
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &thief, &longer, &now
		return server.Update(t.Context(), lease) == nil
	}, apiserver.Patience, 10*time.Millisecond)
	require.Eventually(t, func() bool { now := holder(); return now != "" && now != thief && now != first },
		apiserver.Patience, 50*time.Millisecond)

	u := cephOSD(t, "osds", `{storage: [{hosts: [a], osds: [{data: /dev/sdb}]}]}`)
	u.SetNamespace("elected")
	create(t, u)
	require.Eventually(t, func() bool { return len(temporal.all()) > 0 }, apiserver.Patience, 20*time.Millisecond)
	require.Empty(t, watcher.ended)
}

// TestAFollowerCloses: of several watchers only the one that leads tells the keeper, and each closes by itself.
func TestAFollowerCloses(t *testing.T) {
	t.Parallel()
	const ns = "followed"
	w := newBudgetWorld(t, ns)
	create(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: "osd-3", Labels: map[string]string{"app": "rook-ceph-osd", "ceph-osd-id": "3"},
		},
		Spec: corev1.PodSpec{NodeName: "followed-a", Containers: []corev1.Container{{Name: "osd", Image: "ceph"}}},
	})
	for _, specs := range []budget.Specs{{Daemons: closed, Unproved: &closed}, atRest} {
		before, _, err := w.cluster.ReadBudgets(t.Context(), w.key)
		require.NoError(t, err)
		_, err = w.cluster.ApplyBudgets(t.Context(), activities.BudgetInput{Cluster: w.key, Specs: specs, Before: before})
		require.NoError(t, err)
	}
	leader, longer, now := "somebody-else", int32(3600), metav1.NowMicro()
	create(t, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: starter.LeaseName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &leader, LeaseDurationSeconds: &longer, RenewTime: &now, AcquireTime: &now,
		},
	})
	ready := func(is corev1.ConditionStatus) {
		t.Helper()
		osd := &corev1.Pod{}
		require.NoError(t, server.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "osd-3"}, osd))
		osd.Status.Phase = corev1.PodRunning
		osd.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: is}}
		require.NoError(t, server.Status().Update(t.Context(), osd))
	}
	ready(corev1.ConditionTrue)
	closedBy := func() (alarm string, all bool) {
		all = true
		for _, b := range w.budgets() {
			least := b.Spec.MinAvailable
			alarm, all = b.Annotations[kube.AlarmAnnotation], all && least != nil && least.IntValue() == budget.Everything
		}
		return alarm, all
	}
	_, all := closedBy()
	require.False(t, all)
	watcher := startWatcher(t, config, starter.Options{
		Namespace: ns, LeaderElection: true, LeaderElectionNamespace: ns,
	})
	defer watcher.stop()
	temporal := watcher.told

	require.EventuallyWithT(t, func(c *assert.CollectT) {
		ready(corev1.ConditionTrue) // until it watches
		ready(corev1.ConditionFalse)
		alarm, all := closedBy()
		assert.Contains(c, alarm, "osd.3")
		assert.True(c, all)
	}, apiserver.Patience, 200*time.Millisecond)
	require.False(t, temporal.heard(func(workflows.Hint) bool { return true }))
}
