package api

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestOneOfTwoPoliciesIsInCharge as the API server tells it: the older, and when it is gone, the other. A node whose storage
// both select belongs to the one that is in charge.
func TestOneOfTwoPoliciesIsInCharge(t *testing.T) {
	const ns = "two-policies"
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	create(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "osd-0", Labels: map[string]string{"app": "rook-ceph-osd", "ceph-osd-id": "0"}},
		Spec:       corev1.PodSpec{NodeName: "node-of-both", Containers: []corev1.Container{{Name: "osd", Image: "ceph"}}},
	})
	first, second := policy(t, "a-first", `{ceph: {}}`), policy(t, "b-second", `{ceph: {connection: {monEndpoints: {name: other, key: data}}}}`)
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
	key, answer, err := cluster.PolicyOf(t.Context(), "node-of-both")
	require.NoError(t, err)
	assert.True(t, answer.OK, answer.Reason)
	assert.Equal(t, a, key)

	require.NoError(t, server.Delete(t.Context(), first))
	p, err = cluster.Policy(t.Context(), b)
	require.NoError(t, err)
	assert.Empty(t, p.Second)
}
