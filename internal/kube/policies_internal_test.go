package kube

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestPolicyAs: a policy that was read is not read again for as long as somebody means just that one. What was changed
// since, and another one of the same name, is.
func TestPolicyAs(t *testing.T) {
	key := storage.ClusterKey{Namespace: "n", Name: "p"}
	policy := func(uid types.UID, generation int64) *v1alpha1.MaintenancePolicy {
		p := &v1alpha1.MaintenancePolicy{Spec: v1alpha1.MaintenancePolicySpec{Ceph: &v1alpha1.CephSpec{}}}
		p.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: uid, Generation: generation}
		return p
	}
	gets := 0
	on := func(p *v1alpha1.MaintenancePolicy) client.Client {
		return fake.NewClientBuilder().WithScheme(Scheme).WithObjects(p).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(
				ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption,
			) error {
				gets++
				return c.Get(ctx, key, o, opts...)
			},
		}).Build()
	}
	c := &Cluster{api: on(policy("u", 3))}
	seen, err := c.Policy(t.Context(), key)
	require.NoError(t, err)
	v := activities.PolicyVersion{UID: seen.UID, Generation: seen.Generation}
	for _, step := range []struct {
		as   activities.PolicyVersion
		gets int
	}{
		{v, 0},
		{activities.PolicyVersion{}, 1},
		{v, 1},
		{activities.PolicyVersion{UID: "u", Generation: 2}, 2},
		{activities.PolicyVersion{UID: "another", Generation: 3}, 3},
	} {
		p, err := c.policyAs(t.Context(), key, step.as)
		require.NoError(t, err)
		require.Equal(t, int64(3), p.Generation)
		require.Equal(t, step.gets, gets, step.as)
	}
	c.api = on(policy("another", 1))
	p, err := c.policyAs(t.Context(), key, activities.PolicyVersion{UID: "another", Generation: 1})
	require.NoError(t, err)
	require.Equal(t, "another", string(p.UID))
}
