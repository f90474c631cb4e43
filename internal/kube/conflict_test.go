package kube

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
)

// TestConflictWithABudgetOfMarks: the marked budget of a policy that is gone may outlive the marks that it counts. Who
// sets marks beside it puts each pod under two budgets.
func TestConflictWithABudgetOfMarks(t *testing.T) {
	t.Parallel()
	policy := func(name string) *v1alpha1.MaintenancePolicy {
		p := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: name}}
		p.Spec.Ceph = &v1alpha1.CephSpec{}
		return p
	}
	closed := budget.Spec{MinAvailable: budget.Everything}
	pod := func(app string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "rook-ceph", Name: app, Labels: map[string]string{"app": app},
		}}
	}
	mine := policy("mine")
	left := *markedBudget(policy("gone")).of(policy("gone"), closed)
	for app, conflicts := range map[string]bool{"rook-ceph-osd": true, "rook-ceph-rgw": false} {
		c := NewFor(fake.NewClientset(pod(app)), nil)
		for _, want := range []*policyv1.PodDisruptionBudget{
			markedBudget(mine).of(mine, closed), unmarkedBudget(mine).of(mine, closed),
		} {
			why, _, err := c.conflict(t.Context(), []policyv1.PodDisruptionBudget{left}, want, OSDSelector(mine))
			require.NoError(t, err)
			require.Equal(t, conflicts, why != "", "%s beside %s: %s", want.Name, app, why)
		}
	}
}
