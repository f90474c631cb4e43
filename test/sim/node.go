package sim

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// This file is a node, as the API server shows it.

type node struct {
	name, zone, uid       string
	boot                  int
	ready, cordoned, gone bool
	tainted               string
	cordonedBy            owner
	cordonedAt, taintedAt time.Time
	lookedAt              time.Time // by lockkeeper
	atOnce                bool      // cordoned right after that look: both did so, and there is but one mark
	rebooting             bool
	cut                   bool // from the control plane: what runs there goes on
}

func (n *node) schedulable() bool {
	return n != nil && !n.gone && !n.cordoned && n.tainted == "" && n.ready
}

func (n *node) object() corev1.Node {
	ready := corev1.ConditionFalse
	if n.ready {
		ready = corev1.ConditionTrue
	}
	out := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.name, UID: types.UID(n.uid),
			Labels: map[string]string{corev1.LabelHostname: n.name, corev1.LabelTopologyZone: n.zone},
		},
		Spec: corev1.NodeSpec{Unschedulable: n.cordoned},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
			NodeInfo:   corev1.NodeSystemInfo{BootID: fmt.Sprintf("boot-%s-%d", n.name, n.boot)},
		},
	}
	if n.cordoned {
		out.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: string(n.cordonedBy), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:unschedulable":{}}}`)},
		}
	}
	if n.tainted != "" {
		effect := corev1.TaintEffectNoExecute // a person's; where deletions are guarded nothing goes because of it
		if slices.Contains(kube.RemovalTaints, n.tainted) {
			effect = corev1.TaintEffectNoSchedule
		}
		out.Spec.Taints = []corev1.Taint{{Key: n.tainted, Effect: effect}}
	}
	return out
}
