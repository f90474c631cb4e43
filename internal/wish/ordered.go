package wish

import (
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// This file has the controllers that choose the order themselves. Their wish is what they will ask for next.

// statefulSet wants the pod with the highest number first, and the next one when all that are higher serve.
func (w *world) statefulSet(o metav1.Object, pods []*corev1.Pod) {
	s, ok := o.(*appsv1.StatefulSet)
	if !ok {
		return
	}
	pods = slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return ordinal(p) < 0 })
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return ordinal(b) - ordinal(a) })
	first := 0
	if s.Spec.Ordinals != nil {
		first = int(s.Spec.Ordinals.Start)
	}
	end, partition := first+number(s.Spec.Replicas, 1), 0
	if u := s.Spec.UpdateStrategy.RollingUpdate; u != nil {
		partition = number(u.Partition, 0)
	}
	updates := s.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType && s.Status.UpdateRevision != ""
	parallel := s.Spec.PodManagementPolicy == appsv1.ParallelPodManagement
	next := end // what is missing above the first pod to look at is being made
	for _, p := range pods {
		n := ordinal(p)
		wish := Wish{Owner: "StatefulSet/" + s.Name, Newer: n < end && n >= first}
		switch {
		case !wish.Newer:
			w.add(p, wish)
			if !parallel {
				return
			}
			continue
		case n != next-1:
			return
		case updates && n >= partition && p.Labels[appsv1.StatefulSetRevisionLabel] != s.Status.UpdateRevision:
			w.add(p, wish)
			return
		case !ready(p):
			return
		}
		next = n
	}
}

// ordinal is a pod's number in its StatefulSet, or −1.
func ordinal(p *corev1.Pod) int {
	n, err := strconv.Atoi(p.Name[strings.LastIndex(p.Name, "-")+1:])
	if err != nil {
		return -1
	}
	return n
}

// daemonSet wants every pod of before its last change, and lets as many go as may be unavailable. Which of them goes
// first is all the same to it.
func (w *world) daemonSet(o metav1.Object, pods []*corev1.Pod) {
	d, ok := o.(*appsv1.DaemonSet)
	if !ok {
		return
	}
	generation := d.Annotations[appsv1.DeprecatedTemplateGeneration]
	if generation == "" || d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		return
	}
	wanted := max(int(d.Status.DesiredNumberScheduled), len(pods))
	var old []*corev1.Pod
	available := 0
	for _, p := range pods {
		if ready(p) {
			available++
		}
		if p.Labels[templateGeneration] != generation {
			old = append(old, p)
		}
	}
	if wanted-available >= mostUnavailable(d, wanted) {
		// It waits for what is away, and deletes only what does not serve anyway.
		old = slices.DeleteFunc(old, ready)
	}
	for _, p := range old {
		w.add(p, Wish{Owner: "DaemonSet/" + d.Name, Newer: true})
	}
}

// templateGeneration is the label by which a DaemonSet knows the pods of its last change.
const templateGeneration = "pod-template-generation"

func mostUnavailable(d *appsv1.DaemonSet, wanted int) int {
	u := d.Spec.UpdateStrategy.RollingUpdate
	if u == nil || u.MaxUnavailable == nil {
		return 1
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(u.MaxUnavailable, wanted, true)
	if err != nil {
		return 1
	}
	return n
}
