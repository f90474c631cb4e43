package starter

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

func budgetOf(namespace, policy, owner string) policyv1.PodDisruptionBudget {
	return policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "lockkeeper-" + policy + "-osd",
		Labels: map[string]string{kube.LabelManagedBy: owner, kube.LabelPolicy: policy},
	}}
}

func TestLeftovers(t *testing.T) {
	t.Parallel()
	policies := []v1alpha1.MaintenancePolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "ceph"}}}
	nameless := budgetOf("rook-ceph", "", kube.FieldOwner)
	assert.Equal(t, map[storage.ClusterKey]bool{
		{Namespace: "rook-ceph", Name: "gone"}: true, {Namespace: "elsewhere", Name: "ceph"}: true,
	}, Leftovers(policies, []policyv1.PodDisruptionBudget{
		budgetOf("rook-ceph", "ceph", kube.FieldOwner), budgetOf("rook-ceph", "gone", kube.FieldOwner),
		budgetOf("rook-ceph", "gone", kube.FieldOwner), budgetOf("elsewhere", "ceph", kube.FieldOwner),
		budgetOf("rook-ceph", "theirs", "somebody"), nameless,
	}))
	assert.Empty(t, Leftovers(nil, nil))
}

// TestAKeeperTakesAwayWhatAPolicyLeft: not at once, since its last one may be about to; again if that failed, and more
// and more seldom.
func TestAKeeperTakesAwayWhatAPolicyLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	round := func() []string {
		w.watcher.ensureAll(t.Context())
		return w.temporal.take()
	}
	assert.Empty(t, round())
	left, current := budgetOf("rook-ceph", "gone", kube.FieldOwner), budgetOf("rook-ceph", "ceph", kube.FieldOwner)
	require.NoError(t, w.client.Create(t.Context(), &left))
	require.NoError(t, w.client.Create(t.Context(), &current))
	assert.Empty(t, round(), "it may be about to go")
	w.temporal.away = errors.New("no answer")
	assert.Empty(t, round())
	w.temporal.away = nil
	started := []string{"signal rook-ceph/gone: budgets are there whose policy is gone"}
	for n, want := range [][]string{started, started, nil, started, nil, nil, nil, started} {
		assert.Equal(t, want, round(), n)
	}
	require.NoError(t, w.client.Delete(t.Context(), &left))
	assert.Empty(t, round())
	left.ResourceVersion = ""
	require.NoError(t, w.client.Create(t.Context(), &left))
	assert.Empty(t, round(), "another one")
	assert.Equal(t, started, round())
}
