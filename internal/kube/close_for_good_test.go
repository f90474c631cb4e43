package kube

import (
	"testing"

	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lockkeeper/lockkeeper/internal/budget"
)

// TestCloseForGoodUndoesNoAlarm: between the reading and the writing of a budget that is about to go somebody raised an
// alarm and closed it. What it left out before does not come back.
func TestCloseForGoodUndoesNoAlarm(t *testing.T) {
	open := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "b", UID: "u", Generation: 1,
			Annotations: map[string]string{AlarmAnnotation: budget.NoAlarm},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "zone", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"x"}},
			}},
		},
	}
	closed := open.DeepCopy()
	closed.Annotations[AlarmAnnotation] = "an OSD is down"
	closed.Spec.Selector.MatchExpressions = nil
	c := &Cluster{typed: fake.NewClientset(closed)}
	require.Error(t, c.closeForGood(t.Context(), open))
	now, err := c.typed.PolicyV1().PodDisruptionBudgets("n").Get(t.Context(), "b", metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, now.Spec.Selector.MatchExpressions)
	require.NoError(t, c.closeForGood(t.Context(), now))
}
