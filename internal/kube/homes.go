package kube

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedule "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// SoleKind is the kind of daemon whose only replica has a budget: without a manager nobody knows whether the data is
// whole.
const SoleKind = "mgr"

// HomeOf tells where else the only pod of a group could run. granted are nodes that a job was allowed to empty, whether
// or not it has begun. It goes by node selector, required node affinity and taints. What it does not know (room,
// spreading) only matters to who hopes for another node: the pod may wait.
func HomeOf(pods []*corev1.Pod, nodes []corev1.Node, granted []string, now time.Time) budget.Home {
	at := slices.IndexFunc(pods,
		func(p *corev1.Pod) bool { return p.Spec.NodeName != "" && PodState(p) != storage.PodTerminating })
	if at < 0 {
		return budget.HomeSettled // it has gone already
	}
	pod := pods[at]
	leaving := func(n *corev1.Node) bool {
		return n.Spec.Unschedulable || RemovalTaint(n, now) != "" || slices.Contains(granted, n.Name)
	}
	own := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == pod.Spec.NodeName })
	if own >= 0 && !leaving(&nodes[own]) {
		return budget.HomeSettled
	}
	ever := false
	for i := range nodes {
		n := &nodes[i]
		if i == own || !suits(pod, n) {
			continue
		}
		if ever = true; NodeReady(n) && !leaving(n) {
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
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n); err != nil || !ok {
		return false
	}
	lasting := func(t *corev1.Taint) bool {
		passes := strings.HasPrefix(t.Key, "node.kubernetes.io/") || slices.Contains(RemovalTaints, t.Key)
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !passes
	}
	_, untolerated := schedule.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints,
		pod.Spec.Tolerations, lasting, false)
	return !untolerated
}
