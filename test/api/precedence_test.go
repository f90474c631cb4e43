package api

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/precedence"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestOneOfTwoPoliciesIsInCharge as the API server tells it: the older, and when it is gone, the other. A node whose
// storage both select belongs to the one that is in charge.
func TestOneOfTwoPoliciesIsInCharge(t *testing.T) {
	const ns = "two-policies"
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	create(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: "osd-0",
			Labels: map[string]string{"app": "rook-ceph-osd", "ceph-osd-id": "0"},
		},
		Spec: corev1.PodSpec{NodeName: "node-of-both", Containers: []corev1.Container{{Name: "osd", Image: "ceph"}}},
	})
	first, second := policy(t, "a-first", `{ceph: {}}`),
		policy(t, "b-second", `{ceph: {connection: {monEndpoints: {name: other, key: data}}}}`)
	first.SetNamespace(ns)
	second.SetNamespace(ns)
	create(t, first)
	create(t, second) // of the same second, most likely; then the name decides
	cluster, err := kube.New(config)
	require.NoError(t, err)
	a, b := storage.ClusterKey{Namespace: ns, Name: "a-first"}, storage.ClusterKey{Namespace: ns, Name: "b-second"}

	p, err := cluster.Policy(t.Context(), a)
	require.NoError(t, err)
	assert.Empty(t, p.Second)
	p, err = cluster.Policy(t.Context(), b)
	require.NoError(t, err)
	assert.Contains(t, p.Second, "MaintenancePolicy two-policies/a-first was first")
	assert.Contains(t, p.Second, "both select the pods with app=rook-ceph-osd")
	keys, answer, err := cluster.PoliciesOf(t.Context(), "node-of-both")
	require.NoError(t, err)
	assert.True(t, answer.OK, answer.Reason)
	assert.Equal(t, []storage.ClusterKey{a}, keys)

	for _, p := range []client.Object{second, first} { // one that is not in charge may hold Machines yet
		keys, err := cluster.FencingPolicies(t.Context())
		require.NoError(t, err)
		assert.NotContains(t, keys, a)
		require.NoError(t, server.Patch(t.Context(), p, client.RawPatch(types.MergePatchType,
			[]byte(`{"spec":{"fencing":{"api":"ClusterAPI","namespace":"machines"}}}`))))
	}
	keys, err = cluster.FencingPolicies(t.Context())
	require.NoError(t, err)
	assert.Subset(t, keys, []storage.ClusterKey{a, b})

	require.NoError(t, server.Delete(t.Context(), first))
	p, err = cluster.Policy(t.Context(), b)
	require.NoError(t, err)
	assert.Empty(t, p.Second)
}

// TestOneOfTwoNamespacesIsInCharge: the claims of keepers in different namespaces go through the API server, whose list
// of all policies decides. The list that a keeper goes by has its own claim.
func TestOneOfTwoNamespacesIsInCharge(t *testing.T) {
	cluster, err := kube.New(config)
	require.NoError(t, err)
	var keys []storage.ClusterKey
	for _, ns := range []string{"fsid-a", "fsid-b"} { // of the same second, most likely; then the namespace decides
		create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		p := policy(t, "ceph", `{ceph: {}}`)
		p.SetNamespace(ns)
		create(t, p)
		keys = append(keys, storage.ClusterKey{Namespace: ns, Name: "ceph"})
	}
	const id = "5f1c0f6e-0000-4000-8000-000000000001"
	claim := func(key storage.ClusterKey, c precedence.Claim) {
		require.NoError(t, cluster.ReportStatus(t.Context(), key, activities.Report{
			Decision: budget.Decision{Mode: budget.ModeClosed, Reason: budget.ReasonNotInCharge},
			Memory:   activities.Memory{Claim: c},
		}))
	}
	standing := func(key storage.ClusterKey) precedence.Standing {
		p, err := cluster.Policy(t.Context(), key)
		require.NoError(t, err)
		require.Empty(t, p.Second, "by what they say they have nothing to do with each other")
		return p.Standing(id)
	}
	held, aside := precedence.Claim{ID: id, Held: true}, precedence.Claim{ID: id}
	assert.Contains(t, standing(keys[0]).Waits, "is not in the policy's status yet")

	claim(keys[1], held) // the younger comes first
	assert.Equal(t, precedence.Standing{}, standing(keys[1]))
	claim(keys[0], held)
	assert.Contains(t, standing(keys[0]).Waits, "MaintenancePolicy fsid-b/ceph, which is younger")
	assert.Contains(t, standing(keys[1]).First, "MaintenancePolicy fsid-a/ceph was first")
	claim(keys[1], precedence.Claim{}) // a report that knows of no claim withdraws none
	assert.NotEmpty(t, standing(keys[0]).Waits)
	claim(keys[1], aside)
	assert.Equal(t, precedence.Standing{}, standing(keys[0]))
	assert.NotEmpty(t, standing(keys[1]).First)

	second, err := cluster.MaintenancePolicy(t.Context(), keys[1])
	require.NoError(t, err)
	answer, err := cluster.Second(t.Context(), second) // what the doctor asks
	require.NoError(t, err)
	assert.Contains(t, answer.Reason, "MaintenancePolicy fsid-a/ceph was first")

	first, err := cluster.MaintenancePolicy(t.Context(), keys[0])
	require.NoError(t, err)
	require.NoError(t, server.Delete(t.Context(), first))
	assert.Contains(t, standing(keys[1]).Waits, "is not in the policy's status yet")
	claim(keys[1], held)
	assert.Equal(t, precedence.Standing{}, standing(keys[1]))
}
