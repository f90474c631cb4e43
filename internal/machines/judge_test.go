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
	broken := HealthCheck{
		MachineChecks: []fencing.Check{{Type: "DiskHealthy", Status: "False", Timeout: time.Second}},
		selector:      labels.SelectorFromSet(labels.Set{"pool": "storage"}),
	}
	restarts, paused := broken, broken
	restarts.Template, paused.Paused = true, true
	disk := map[string]any{"status": map[string]any{"conditions": []any{
		map[string]any{"type": "Ready", "status": "Unknown"}, // without a time
		map[string]any{"type": "DiskHealthy", "status": "False", "lastTransitionTime": "2026-11-27T11:59:30Z"},
	}}}
	failed := map[string]any{"status": map[string]any{"phase": "Failed"}}
	asked := map[string]any{"metadata": map[string]any{"annotations": map[string]any{remediateMachine: ""}}}
	for name, c := range map[string]struct {
		checks    []HealthCheck
		noNode    bool
		ready     bool
		machine   map[string]any
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
		"a condition of its Machine": {
			checks: []HealthCheck{broken}, ready: true, machine: disk, unhealthy: now.Add(-29 * time.Second),
		},
		"a condition of its Machine, in time": {
			checks: []HealthCheck{{
				MachineChecks: []fencing.Check{{Type: "DiskHealthy", Status: "False", Timeout: time.Hour}},
				selector:      broken.selector,
			}}, ready: true, machine: disk, next: now.Add(time.Hour - 30*time.Second),
		},
		"the earlier of two": {
			checks: []HealthCheck{broken, check(time.Second, false, "storage")}, machine: disk,
			unhealthy: lostAt.Add(time.Second),
		},
		"its Machine has failed": {
			checks: []HealthCheck{broken}, ready: true, machine: failed, unhealthy: now,
		},
		"its Machine has failed, nobody checks": {ready: true, machine: failed},
		"its Machine has failed, and stays":     {checks: []HealthCheck{restarts}, ready: true, machine: failed},
		"a person asks for it": {
			checks: []HealthCheck{broken}, ready: true, machine: asked, unhealthy: now,
		},
		"a person asks, and it is paused": {checks: []HealthCheck{paused}, ready: true, machine: asked},
		"its Node is gone":                {checks: []HealthCheck{check(0, true, "storage")}, noNode: true, unhealthy: now},
	} {
		t.Run(name, func(t *testing.T) {
			machine := &unstructured.Unstructured{Object: map[string]any{}}
			if c.machine != nil {
				machine.Object = c.machine
			}
			machine = machine.DeepCopy()
			machine.SetLabels(map[string]string{"pool": "storage"})
			n := &corev1.Node{}
			if !c.noNode {
				n.Name = "node-a"
				ready := corev1.ConditionUnknown
				if c.ready {
					ready = corev1.ConditionTrue
				}
				n.Status.Conditions = []corev1.NodeCondition{{
					Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(lostAt),
				}}
			}
			p := h.Judge(machine, n, c.checks, now)
			require.Equal(t, c.unhealthy, p.Unhealthy)
			require.Equal(t, c.next, p.Next)
		})
	}
}
