package kube

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
)

// MonLabel is the pod label with a mon's name.
const MonLabel = "ceph_daemon_id"

// MonBudgetName is the name of the budget over a policy's mons.
func MonBudgetName(policy string) string { return "lockkeeper-" + policy + "-mon" }

// MonSelector is the selector of the policy's mon pods.
func MonSelector(p *v1alpha1.MaintenancePolicy) *metav1.LabelSelector {
	var selections v1alpha1.DaemonSelections
	if p.Spec.Ceph != nil {
		selections = p.Spec.Ceph.Daemons
	}
	return orRook(selections.Mon, "rook-ceph-mon")
}

// ManagerSelector selects the policy's manager pods.
func ManagerSelector(p *v1alpha1.MaintenancePolicy) *metav1.LabelSelector {
	var selections v1alpha1.DaemonSelections
	if p.Spec.Ceph != nil {
		selections = p.Spec.Ceph.Daemons
	}
	i := slices.IndexFunc(DaemonKinds, func(k DaemonKind) bool { return k.Name == SoleKind })
	return DaemonKinds[i].Selector(selections)
}

// MonPods lists the policy's mon pods, in one request.
func (c *Cluster) MonPods(ctx context.Context, p *v1alpha1.MaintenancePolicy) ([]storageview.MonPod, error) {
	selector, err := metav1.LabelSelectorAsSelector(MonSelector(p))
	if err != nil {
		return nil, fmt.Errorf("spec.ceph.daemons.mon: %w", err)
	}
	list, err := c.typed.CoreV1().Pods(p.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	var out []storageview.MonPod
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || pod.Labels["mon_canary"] != "" {
			continue // ended, or Rook's placeholder that only tries where a mon could run
		}
		out = append(out, storageview.MonPod{
			Mon: pod.Labels[MonLabel], State: PodState(pod), Node: PodNode(pod), Managed: metav1.GetControllerOf(pod) != nil,
			Image: monImage(pod),
		})
	}
	return out, nil
}

// monImage is that of the mon's own container: the one that Rook calls "mon", or the first. Others, which somebody may
// have put into some of the pods only, say nothing of a mon.
func monImage(pod *corev1.Pod) string {
	if len(pod.Spec.Containers) == 0 {
		return ""
	}
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "mon" })
	return pod.Spec.Containers[max(i, 0)].Image
}
