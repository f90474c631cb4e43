package wish_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lockkeeper/lockkeeper/internal/wish"
)

func tainted(taints ...corev1.Taint) corev1.Node {
	return corev1.Node{ObjectMeta: meta("node-a"), Spec: corev1.NodeSpec{Taints: taints}}
}

func TestFindDriven(t *testing.T) {
	repair := corev1.Taint{Key: "example.com/repair", Value: "disk", Effect: corev1.TaintEffectNoExecute}
	toleration := func(r corev1.Toleration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, r) }
	}
	for name, c := range map[string]struct {
		node corev1.Node
		edit func(*corev1.Pod)
		want string
	}{
		"driven off":      {tainted(repair), nil, repair.Key},
		"not tainted":     {tainted(), nil, ""},
		"another node":    {tainted(repair), func(p *corev1.Pod) { p.Spec.NodeName = "node-b" }, ""},
		"goes already":    {tainted(repair), terminating, ""},
		"runs nothing":    {tainted(repair), crashed, ""},
		"only scheduling": {tainted(corev1.Taint{Key: repair.Key, Effect: corev1.TaintEffectNoSchedule}), nil, ""},
		"of a node that fails": {
			tainted(corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}), nil, "",
		},
		"tolerates all": {tainted(repair), toleration(corev1.Toleration{Operator: corev1.TolerationOpExists}), ""},
		"tolerates the key": {
			tainted(repair), toleration(corev1.Toleration{Key: repair.Key, Operator: corev1.TolerationOpExists}), "",
		},
		"tolerates another value": {
			tainted(repair), toleration(corev1.Toleration{Key: repair.Key, Value: "board"}), repair.Key,
		},
		"tolerates scheduling only": {
			tainted(repair), toleration(corev1.Toleration{
				Key: repair.Key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
			}), repair.Key,
		},
		"tolerates it for a time": {
			tainted(repair), toleration(corev1.Toleration{
				Key: repair.Key, Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(60)),
			}), "",
		},
		"one of two": {
			tainted(corev1.Taint{Key: "storage", Effect: corev1.TaintEffectNoExecute}, repair),
			toleration(corev1.Toleration{Key: "storage", Operator: corev1.TolerationOpExists}), repair.Key,
		},
		"a kubelet's own": {
			tainted(repair), func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod("osd-3", by("ReplicaSet", "osd-3"))
			if c.edit != nil {
				c.edit(&p)
			}
			got := wish.FindDriven([]corev1.Pod{p}, []corev1.Node{c.node})
			if c.want == "" {
				require.Empty(t, got)
				return
			}
			require.Equal(t, []wish.Driven{{Pod: "osd-3", UID: p.UID, Node: "node-a", Taint: c.want}}, got)
		})
	}
}

// TestOfATaintThatIsNamed: a drain goes by one taint, and what another drives off is not its.
func TestOfATaintThatIsNamed(t *testing.T) {
	n := tainted(corev1.Taint{Key: "a", Effect: corev1.TaintEffectNoExecute},
		corev1.Taint{Key: "b", Effect: corev1.TaintEffectNoExecute})
	p := pod("osd-3", by("ReplicaSet", "osd-3"))
	p.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}
	require.Empty(t, wish.DrivenOff(&p, &n, "a"))
	require.Equal(t, "b", wish.DrivenOff(&p, &n, "b"))
	require.Equal(t, "b", wish.DrivenOff(&p, &n, ""))
	terminating(&p)
	require.Equal(t, "b", wish.DrivenOff(&p, &n, "b"), "whoever waits until it is gone")
}
