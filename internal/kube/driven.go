package kube

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/wish"
)

// DrivenDaemon is the pod of an OSD or of a mon that a taint of its node is to drive off.
type DrivenDaemon struct {
	wish.Driven
	Daemon string `json:"daemon"` // what the pod runs: "osd.3", "mon.a"
}

// DrivenOff finds those of a policy's guarded pods that taints are to drive off. Mons come first, then OSDs by number.
func DrivenOff(p *v1alpha1.MaintenancePolicy, guarded []corev1.Pod, nodes []corev1.Node) (out []DrivenDaemon) {
	driven := wish.FindDriven(guarded, nodes)
	for i := range guarded {
		at := slices.IndexFunc(driven, func(d wish.Driven) bool { return d.UID == guarded[i].UID })
		if at >= 0 {
			out = append(out, DrivenDaemon{Driven: driven[at], Daemon: DaemonOf(p, &guarded[i])})
		}
	}
	slices.SortStableFunc(out, func(a, b DrivenDaemon) int { return CompareDaemons(a.Daemon, b.Daemon) })
	return out
}

// DrivenOff reads which pods of a policy taints of their nodes are to drive off.
func (c *Cluster) DrivenOff(ctx context.Context, p *v1alpha1.MaintenancePolicy) ([]DrivenDaemon, error) {
	pods, err := c.typed.CoreV1().Pods(p.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	guarded, err := GuardedPods(p, pods.Items)
	if err != nil || len(guarded) == 0 {
		return nil, err
	}
	nodes, err := c.typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return DrivenOff(p, guarded, nodes.Items), nil
}
