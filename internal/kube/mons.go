package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// MonLabel is the pod label with a mon's name.
const MonLabel = "ceph_daemon_id"

// MonBudgetName is the name of the budget over a policy's mons.
func MonBudgetName(policy string) string { return budgetPrefix(policy) + "mon" }

// MonSelector is the selector of the policy's mon pods.
func MonSelector(p *v1alpha1.MaintenancePolicy) *metav1.LabelSelector {
	if KindOf(p) != storage.Ceph {
		return nothing()
	}
	return orRook(selections(p).Mon, "rook-ceph-mon")
}

// ManagerSelector selects the policy's manager pods.
func ManagerSelector(p *v1alpha1.MaintenancePolicy) *metav1.LabelSelector {
	if KindOf(p) != storage.Ceph {
		return nothing()
	}
	i := slices.IndexFunc(DaemonKinds, func(k DaemonKind) bool { return k.Name == SoleKind })
	return DaemonKinds[i].Selector(selections(p))
}

func monPods(all []corev1.Pod, selector labels.Selector) (out []storageview.MonPod) {
	for i := range all {
		pod := &all[i]
		if ended(pod) || pod.Labels["mon_canary"] != "" || !selector.Matches(labels.Set(pod.Labels)) {
			continue // ended, or Rook's placeholder that only tries where a mon could run
		}
		out = append(out, storageview.MonPod{
			Mon: pod.Labels[MonLabel], State: PodState(pod), Node: PodNode(pod), Managed: metav1.GetControllerOf(pod) != nil,
			Image: monImage(pod), Name: pod.Name, UID: string(pod.UID), LetGo: LetGo(pod),
		})
	}
	return out
}

// monImage is that of the mon's own container.
func monImage(pod *corev1.Pod) string {
	if c := monspec.MonContainer(&pod.Spec); c != nil {
		return c.Image
	}
	return ""
}
