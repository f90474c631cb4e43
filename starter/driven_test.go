package starter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/wish"
	"github.com/lockkeeper/lockkeeper/workflows"
)

func drivenOff(node, taint string, daemons ...string) (out []kube.DrivenDaemon) {
	for _, d := range daemons {
		out = append(out, kube.DrivenDaemon{Driven: wish.Driven{Node: node, Taint: taint}, Daemon: d})
	}
	return out
}

func TestDecideTaints(t *testing.T) {
	const automatic, approve = v1alpha1.RestartsAutomatic, v1alpha1.RestartsApprove
	one := drivenOff("node-a", "repair", "mon.a", "osd.0")
	drain := workflows.DrainNodeInput{Node: "node-a", Taint: "repair", Reason: "node-a is tainted repair:NoExecute"}
	for name, c := range map[string]struct {
		before, now []kube.DrivenDaemon
		modes       [2]v1alpha1.RestartMode
		after       time.Duration
		want        []workflows.DrainNodeInput
	}{
		"new":           {now: one, after: drivenFor, want: []workflows.DrainNodeInput{drain}},
		"about to go":   {now: one, after: drivenFor - 1},
		"known already": {before: one, now: one, after: drivenFor},
		"some have gone": {
			before: one, now: drivenOff("node-a", "repair", "osd.0"), after: drivenFor,
		},
		"all have gone": {before: one, after: drivenFor},
		"asked to wait": {now: one, modes: [2]v1alpha1.RestartMode{approve, approve}, after: drivenFor},
		"asked to start": {
			before: one, now: one, modes: [2]v1alpha1.RestartMode{approve, automatic}, after: drivenFor,
			want: []workflows.DrainNodeInput{drain},
		},
		"another taint": {
			before: drivenOff("node-a", "rebuild", "osd.0"), now: one, after: drivenFor,
			want: []workflows.DrainNodeInput{drain},
		},
		"one more node": {
			before: drivenOff("node-b", "repair", "osd.1"), now: append(one, drivenOff("node-b", "repair", "osd.1")...),
			after: drivenFor, want: []workflows.DrainNodeInput{drain},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range c.modes {
				if c.modes[i] == "" {
					c.modes[i] = automatic
				}
			}
			long := wishTime.Add(-drivenFor)
			before := TakeTaints(c.modes[0], c.before, nil, long)
			told := before.counting(wishTime)
			seen := TakeTaints(c.modes[1], c.now, &before, wishTime)
			at := wishTime.Add(c.after)
			again := TakeTaints(c.modes[1], c.now, &seen, at)
			counting := again.counting(at)
			require.Equal(t, c.want, DecideTaints(&told, counting))
			require.Empty(t, DecideTaints(&counting, counting), "once")
		})
	}
}

// TestAWatcherThatStartsTakesTaintsForNews: what it was told before it does not know.
func TestAWatcherThatStartsTakesTaintsForNews(t *testing.T) {
	s := TakeTaints(v1alpha1.RestartsAutomatic, drivenOff("node-a", "repair", "osd.0"), nil, wishTime)
	require.Len(t, DecideTaints(nil, s.counting(wishTime.Add(drivenFor))), 1)
}

// TestNoTaintIsForgotten: whatever comes and goes between two looks, a node that is to be emptied for long enough has
// its drain, and who looks knows when to look again.
func TestNoTaintIsForgotten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var seen, told *TaintSnapshot
		now := wishTime
		drained := map[string]string{}
		for range rapid.IntRange(1, 20).Draw(t, "looks") {
			var are []kube.DrivenDaemon
			for _, node := range []string{"node-a", "node-b"} {
				if taint := rapid.SampledFrom([]string{"", "repair", "rebuild"}).Draw(t, node); taint != "" {
					are = append(are, drivenOff(node, taint, "osd.0", "osd.1")...)
				}
			}
			now = now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
			s := TakeTaints(v1alpha1.RestartsAutomatic, are, seen, now)
			counting := s.counting(now)
			for _, d := range DecideTaints(told, counting) {
				drained[d.Node] = d.Taint
			}
			for node, n := range counting.Nodes {
				require.Equal(t, n.Taint, drained[node])
			}
			require.Equal(t, len(s.Nodes) > len(counting.Nodes), s.lookAgain(now) > 0)
			seen, told = &s, &counting
		}
	})
}

// TestTaintsOfStrippedObjects: stripping takes nothing that tells whom a taint drives off.
func TestTaintsOfStrippedObjects(t *testing.T) {
	whole := cephOf(3, 4)
	p := &v1alpha1.MaintenancePolicy{Spec: v1alpha1.MaintenancePolicySpec{Ceph: &v1alpha1.CephSpec{}}}
	whole.Nodes[0].Spec.Taints = []corev1.Taint{{Key: "repair", Effect: corev1.TaintEffectNoExecute}}
	for i := range whole.Pods {
		whole.Pods[i].Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "osd", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}
		whole.Pods[i].Status.Phase = corev1.PodRunning
	}
	var stay int
	for i := range whole.Pods {
		if whole.Pods[i].Spec.NodeName == whole.Nodes[0].Name {
			whole.Pods[i].Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
			stay++
			break
		}
	}
	require.Equal(t, 1, stay)
	want := kube.DrivenOff(p, whole.Pods, whole.Nodes)
	require.NotEmpty(t, want)
	got := stripAll(t, whole)
	require.Equal(t, want, kube.DrivenOff(p, got.Pods, got.Nodes))
}
