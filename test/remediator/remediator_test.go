package remediator

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestAllows: of six Machines, by the two arithmetics that were published.
func TestAllows(t *testing.T) {
	for _, test := range []struct {
		what             string
		current, desired int64
		seed, firstWaits bool
	}{
		{"all healthy, maxUnavailable 1", 6, 5, true, true},
		{"one unhealthy, maxUnavailable 1", 5, 5, true, false},
		{"two unhealthy, maxUnavailable 1", 4, 5, false, false},
		{"one unhealthy, maxUnavailable 0", 5, 6, false, false},
	} {
		b := &unstructured.Unstructured{Object: map[string]any{
			"status": map[string]any{"currentHealthy": test.current, "desiredHealthy": test.desired},
		}}
		assert.Equal(t, test.seed, allows(b, false), test.what)
		assert.Equal(t, test.firstWaits, allows(b, true), test.what)
	}
}

func TestScaled(t *testing.T) {
	for _, test := range []struct {
		value any
		up    bool
		want  int
	}{{nil, false, 3}, {"40%", false, 2}, {"40%", true, 3}, {"4", true, 4}, {int64(0), false, 0}} {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		if test.value != nil {
			o.Object["spec"] = map[string]any{"most": test.value}
		}
		n, err := scaled(o, "most", "50%", 6, test.up)
		require.NoError(t, err)
		assert.Equal(t, test.want, n, test)
	}
	_, err := scaled(&unstructured.Unstructured{Object: map[string]any{}}, "most", "many", 6, false)
	require.ErrorContains(t, err, `spec.most "many": must be a number or a percentage`)
}

func TestUnhealthy(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	since := metav1.NewTime(now.Add(-2 * time.Second))
	n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: since},
	}}}
	all := []condition{{"Ready", "Unknown", 2 * time.Second}}
	assert.True(t, unhealthy(n, all, now))
	assert.False(t, unhealthy(n, all, now.Add(-time.Millisecond)), "not for long enough")
	assert.False(t, unhealthy(n, []condition{{"Ready", "False", 0}, {"Disk", "Unknown", 0}}, now))
	assert.True(t, unhealthy(nil, all, now), "it is gone")
}

// TestStoppedWhileItFences: whoever sees that a node is fenced may stop the remediator before the node is started
// again.
func TestStoppedWhileItFences(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	r := &Remediator{}
	r.Fence = func(ctx context.Context, node string, _ bool) error {
		assert.Equal(t, []string{node}, r.Fenced())
		stop()
		return ctx.Err()
	}
	require.NoError(t, r.fence(ctx, "node-a", false))
}
