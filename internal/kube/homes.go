package kube

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedule "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
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
func suits(pod *corev1.Pod, n *corev1.Node) bool { return selects(pod, n) && keptOff(pod, n) == "" }

// selects tells whether a pod wants to run on a node.
func selects(pod *corev1.Pod, n *corev1.Node) bool {
	ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n)
	return err == nil && ok
}

// keptOff is the taint of a node that keeps a pod off it, but for those that go when the node is in service again; "":
// none does.
func keptOff(pod *corev1.Pod, n *corev1.Node) string {
	lasting := func(t *corev1.Taint) bool {
		passes := leaving.OfKubernetes(t.Key) || slices.Contains(RemovalTaints, t.Key)
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !passes
	}
	taint, untolerated := schedule.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints,
		pod.Spec.Tolerations, lasting, false)
	if !untolerated {
		return ""
	}
	return taint.ToString()
}

// Homeless says why a pod that is made of a template now finds no node that takes it; "": one does, as far as node
// selector, required node affinity and taints tell.
func Homeless(template *corev1.PodTemplateSpec, nodes []corev1.Node) string {
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	why := ""
	for i := range nodes {
		n := &nodes[i]
		if !selects(pod, n) {
			continue
		}
		taint := keptOff(pod, n)
		switch unfit := away(n); {
		case unfit == "" && taint == "":
			return ""
		case why != "": // the first one is enough
		case taint != "":
			why = "node " + n.Name + " is tainted " + taint + ", which its template does not tolerate"
		default:
			why = unfit
		}
	}
	if why == "" {
		return "its template selects no node"
	}
	return why
}
