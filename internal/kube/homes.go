package kube

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// SoleKind is the kind of daemon whose only replica has a budget: without a manager nobody knows whether the data is whole.
const SoleKind = "mgr"

// HomeOf tells where else the only pod of a group could run. It goes by node selector, required node affinity and taints. What it does
// not know (room, spreading) only matters to who hopes for another node: the pod may wait.
func HomeOf(pods []*corev1.Pod, nodes []corev1.Node) budget.Home {
	at := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Spec.NodeName != "" && PodState(p) != storage.PodTerminating })
	if at < 0 {
		return budget.HomeSettled // it has gone already
	}
	pod := pods[at]
	own := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == pod.Spec.NodeName })
	if own >= 0 && !nodes[own].Spec.Unschedulable && RemovalTaint(&nodes[own]) == "" {
		return budget.HomeSettled
	}
	ever := false
	for i := range nodes {
		n := &nodes[i]
		if i == own || !suits(pod, n) {
			continue
		}
		if ever = true; NodeReady(n) && !n.Spec.Unschedulable && RemovalTaint(n) == "" {
			return budget.HomeElsewhere
		}
	}
	if ever {
		return budget.HomeNowhereNow
	}
	return budget.HomeOnlyThere
}

// suits tells whether a pod may run on a node when that is in service.
func suits(pod *corev1.Pod, n *corev1.Node) bool {
	if !labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(n.Labels)) || !affine(pod, n) {
		return false
	}
	for _, t := range n.Spec.Taints {
		passing := strings.HasPrefix(t.Key, "node.kubernetes.io/") || slices.Contains(RemovalTaints, t.Key)
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !passing && !tolerates(pod, t) {
			return false
		}
	}
	return true
}

func tolerates(pod *corev1.Pod, t corev1.Taint) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(x corev1.Toleration) bool {
		switch {
		case x.Effect != "" && x.Effect != t.Effect, x.Key != "" && x.Key != t.Key:
			return false
		case x.Operator == corev1.TolerationOpExists:
			return true
		default:
			return x.Key != "" && x.Value == t.Value
		}
	})
}

// affine tells whether a node is one that a pod requires. Terms are alternatives.
func affine(pod *corev1.Pod, n *corev1.Node) bool {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	return slices.ContainsFunc(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
		return matches(t.MatchExpressions, n.Labels) && matches(t.MatchFields, map[string]string{"metadata.name": n.Name})
	})
}

var selectorOperators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn, corev1.NodeSelectorOpExists: selection.Exists,
	corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist, corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
}

func matches(expressions []corev1.NodeSelectorRequirement, of map[string]string) bool {
	for _, e := range expressions {
		r, err := labels.NewRequirement(e.Key, selectorOperators[e.Operator], e.Values)
		if err != nil || !r.Matches(labels.Set(of)) {
			return false
		}
	}
	return true
}
