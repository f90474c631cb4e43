package kube

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lockkeeper/lockkeeper/activities"
)

// TestAwaitNode: one list and one watch are enough for however many changes that are not waited for.
func TestAwaitNode(t *testing.T) {
	ready := func(is corev1.ConditionStatus) []corev1.NodeCondition {
		return []corev1.NodeCondition{{Type: corev1.NodeReady, Status: is}}
	}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Spec: corev1.NodeSpec{Unschedulable: true},
		Status: corev1.NodeStatus{Conditions: ready(corev1.ConditionTrue)},
	}
	typed := fake.NewClientset(n)
	next := func(change func(*corev1.Node)) {
		change(n)
		_, err := typed.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	var seen []activities.NodeState
	back := func(s activities.NodeState) bool {
		seen = append(seen, s)
		switch len(seen) {
		case 1:
			go next(func(n *corev1.Node) { n.Status.Conditions = ready(corev1.ConditionFalse) })
		case 2:
			go next(func(n *corev1.Node) { n.Spec.Unschedulable, n.Status.Conditions = false, ready(corev1.ConditionTrue) })
		}
		return s.Ready && !s.Cordoned
	}
	got, err := NewFor(typed, nil).AwaitNode(t.Context(), "node-a", back)
	require.NoError(t, err)
	assert.True(t, got.Ready && !got.Cordoned, "%+v", got)
	assert.Len(t, seen, 4, "the last one is asked about once more: %+v", seen)
	asked := map[string]int{}
	for _, a := range typed.Actions() {
		asked[a.GetVerb()]++
	}
	assert.Equal(t, map[string]int{"list": 1, "watch": 1, "update": 2}, asked)

	gone := func(s activities.NodeState) bool { return !s.Found }
	require.NoError(t, typed.CoreV1().Nodes().Delete(t.Context(), "node-a", metav1.DeleteOptions{}))
	got, err = NewFor(typed, nil).AwaitNode(t.Context(), "node-a", gone)
	require.NoError(t, err)
	assert.Zero(t, got)
}

// TestCordonAsksOnce: the read by which a cordon is patched tells whether it is the node that was meant, too.
func TestCordonAsksOnce(t *testing.T) {
	typed := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "1"}})
	for _, test := range []struct {
		name, uid string
		same      bool
		asks      int // requests
	}{
		{"node-a", "2", false, 1},
		{"node-a", "1", true, 2},
		{"node-a", "1", true, 1}, // is already
		{"node-a", "", true, 1},
		{"node-b", "1", true, 1}, // is gone
	} {
		before := len(typed.Actions())
		same, err := NewFor(typed, nil).Cordon(t.Context(), test.name, test.uid, true)
		require.NoError(t, err)
		assert.Equal(t, test.same, same, "%+v", test)
		assert.Len(t, typed.Actions(), before+test.asks, "%+v", test)
	}
}
