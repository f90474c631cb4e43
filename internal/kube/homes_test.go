package kube

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/internal/budget"
)

// TestHomeOf: the only manager is on node-a, beside a node-b.
func TestHomeOf(t *testing.T) {
	other := func(change func(*corev1.Node)) func(*corev1.Pod, []corev1.Node) {
		return func(_ *corev1.Pod, nodes []corev1.Node) { nodes[0].Spec.Unschedulable = true; change(&nodes[1]) }
	}
	mine := func(change func(*corev1.PodSpec)) func(*corev1.Pod, []corev1.Node) {
		return func(p *corev1.Pod, nodes []corev1.Node) { nodes[0].Spec.Unschedulable = true; change(&p.Spec) }
	}
	required := func(e corev1.NodeSelectorRequirement) func(*corev1.Pod, []corev1.Node) {
		return mine(func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{
				NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{e}}},
				}},
			}
		})
	}
	taint := func(key string, effect corev1.TaintEffect) func(*corev1.Pod, []corev1.Node) {
		return other(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: key, Effect: effect}} })
	}
	for name, c := range map[string]struct {
		change  func(*corev1.Pod, []corev1.Node)
		want    budget.Home
		granted []string
	}{
		"its node stays":       {func(*corev1.Pod, []corev1.Node) {}, budget.HomeSettled, nil},
		"it has no node":       {func(p *corev1.Pod, _ []corev1.Node) { p.Spec.NodeName = "" }, budget.HomeSettled, nil},
		"its node is cordoned": {other(func(*corev1.Node) {}), budget.HomeElsewhere, nil},
		"its node is gone": {
			func(p *corev1.Pod, _ []corev1.Node) { p.Spec.NodeName = "node-z" },
			budget.HomeElsewhere, nil,
		},
		"its node is granted": {func(*corev1.Pod, []corev1.Node) {}, budget.HomeElsewhere, []string{"node-a"}},
		"both are granted": {
			func(*corev1.Pod, []corev1.Node) {}, budget.HomeNowhereNow,
			[]string{"node-a", "node-b"},
		},
		"the other one is granted": {func(*corev1.Pod, []corev1.Node) {}, budget.HomeSettled, []string{"node-b"}},
		"its term asks for nothing": {mine(func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{
				NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{}},
				}},
			}
		}), budget.HomeOnlyThere, nil},
		"it tolerates the taint of the other one": {func(p *corev1.Pod, nodes []corev1.Node) {
			nodes[0].Spec.Unschedulable = true
			nodes[1].Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}}
			p.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}}
		}, budget.HomeElsewhere, nil},
		"both are cordoned": {
			other(func(n *corev1.Node) { n.Spec.Unschedulable = true }),
			budget.HomeNowhereNow, nil,
		},
		"the other one is not ready": {
			other(func(n *corev1.Node) { n.Status.Conditions = nil }),
			budget.HomeNowhereNow, nil,
		},
		"the other one is being removed": {
			taint(RemovalTaints[0], corev1.TaintEffectNoSchedule),
			budget.HomeNowhereNow, nil,
		},
		"the other one is for others":    {taint("gpu", corev1.TaintEffectNoSchedule), budget.HomeOnlyThere, nil},
		"the other one is not preferred": {taint("gpu", corev1.TaintEffectPreferNoSchedule), budget.HomeElsewhere, nil},
		"it is selected for its node": {
			mine(func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"name": "node-a"} }), budget.HomeOnlyThere, nil,
		},
		"it requires its node": {
			required(corev1.NodeSelectorRequirement{Key: "name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-a"}}),
			budget.HomeOnlyThere, nil,
		},
		"it requires what the other one has": {
			required(corev1.NodeSelectorRequirement{Key: "name", Operator: corev1.NodeSelectorOpExists}),
			budget.HomeElsewhere, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "node-a"}}
			var nodes []corev1.Node
			for _, name := range []string{"node-a", "node-b"} {
				nodes = append(nodes, corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}},
					Status: corev1.NodeStatus{
						Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
					},
				})
			}
			c.change(pod, nodes)
			require.Equal(t, c.want, HomeOf([]*corev1.Pod{pod}, nodes, c.granted, time.Now()))
		})
	}
}

// TestHomeless: a new pod of a template that is pinned to node-a, beside a node-b.
func TestHomeless(t *testing.T) {
	taint := func(key string, effect corev1.TaintEffect) func(*corev1.PodTemplateSpec, []corev1.Node) {
		return func(_ *corev1.PodTemplateSpec, nodes []corev1.Node) {
			nodes[0].Spec.Taints = []corev1.Taint{{Key: key, Effect: effect}}
		}
	}
	for name, c := range map[string]struct {
		change func(*corev1.PodTemplateSpec, []corev1.Node)
		want   string
	}{
		"its node serves": {func(*corev1.PodTemplateSpec, []corev1.Node) {}, ""},
		"tainted": {
			taint("a", corev1.TaintEffectNoSchedule),
			"node node-a is tainted a:NoSchedule, which its template does not tolerate",
		},
		"driven off": {
			taint("a", corev1.TaintEffectNoExecute),
			"node node-a is tainted a:NoExecute, which its template does not tolerate",
		},
		"scheduled there at worst": {taint("a", corev1.TaintEffectPreferNoSchedule), ""},
		"tolerated": {func(t *corev1.PodTemplateSpec, nodes []corev1.Node) {
			taint("a", corev1.TaintEffectNoSchedule)(t, nodes)
			t.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}
		}, ""},
		"its node is cordoned": {
			func(_ *corev1.PodTemplateSpec, nodes []corev1.Node) { nodes[0].Spec.Unschedulable = true },
			"node node-a is cordoned",
		},
		"its node is not ready": {
			func(_ *corev1.PodTemplateSpec, nodes []corev1.Node) { nodes[0].Status.Conditions = nil },
			"node node-a is not ready",
		},
		"free to go elsewhere": {func(t *corev1.PodTemplateSpec, nodes []corev1.Node) {
			nodes[0].Spec.Unschedulable, t.Spec.NodeSelector = true, nil
		}, ""},
		"misspelt": {func(t *corev1.PodTemplateSpec, _ []corev1.Node) {
			t.Spec.NodeSelector[corev1.LabelHostname] = "nod-a"
		}, "its template selects no node"},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes []corev1.Node
			for _, name := range []string{"node-a", "node-b"} {
				nodes = append(nodes, corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
					Status: corev1.NodeStatus{
						Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
					},
				})
			}
			template := &corev1.PodTemplateSpec{}
			template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-a"}
			c.change(template, nodes)
			require.Equal(t, c.want, Homeless(template, nodes))
		})
	}
}
