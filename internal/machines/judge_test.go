package machines

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestJudge: a node is unhealthy by the health checks that select its Machine and are at work, plainly when it is not
// ready by none, and in any case when its Node is gone.
func TestJudge(t *testing.T) {
	h, err := For(nil, storage.ClusterKey{Namespace: "storage", Name: "main"},
		v1alpha1.FencingSpec{API: v1alpha1.FencingOpenShift, Namespace: "machines"})
	require.NoError(t, err)
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	lostAt := now.Add(-time.Minute)
	check := func(timeout time.Duration, paused bool, pool string) HealthCheck {
		return HealthCheck{
			Checks:   []fencing.Check{{Type: "Ready", Status: "Unknown", Timeout: timeout}},
			Paused:   paused,
			selector: labels.SelectorFromSet(labels.Set{"pool": pool}),
		}
	}
	machine := &unstructured.Unstructured{Object: map[string]any{}}
	machine.SetLabels(map[string]string{"pool": "storage"})
	for name, c := range map[string]struct {
		checks    []HealthCheck
		noNode    bool
		unhealthy time.Time
		next      time.Time
	}{
		"nobody checks":         {unhealthy: lostAt},
		"one of other Machines": {checks: []HealthCheck{check(0, false, "others")}, unhealthy: lostAt},
		"in time":               {checks: []HealthCheck{check(time.Hour, false, "storage")}, next: lostAt.Add(time.Hour)},
		"for too long": {
			checks: []HealthCheck{check(time.Second, false, "storage")}, unhealthy: lostAt.Add(time.Second),
		},
		"the check is paused": {checks: []HealthCheck{check(time.Second, true, "storage")}},
		"one of two is paused": {
			checks:    []HealthCheck{check(0, true, "storage"), check(time.Second, false, "storage")},
			unhealthy: lostAt.Add(time.Second),
		},
		"its Node is gone": {checks: []HealthCheck{check(0, true, "storage")}, noNode: true, unhealthy: now},
	} {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{}
			if !c.noNode {
				n.Name = "node-a"
				n.Status.Conditions = []corev1.NodeCondition{{
					Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(lostAt),
				}}
			}
			p := h.Judge(machine, n, c.checks, now)
			require.Equal(t, c.unhealthy, p.Unhealthy)
			require.Equal(t, c.next, p.Next)
		})
	}
}
