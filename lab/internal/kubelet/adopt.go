package kubelet

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// WithoutKubelet is kwok's annotation of a Node without a kubelet, of which somebody else has to say that it is Ready.
// Karpenter's provider for tests makes such Nodes. The lab does for them what kwok's controller does, and runs their
// pods besides.
const WithoutKubelet = "kwok.x-k8s.io/node"

// Adopt adds the nodes that the API server knows and we do not: those added to a lab before it was stopped, and those
// without a kubelet.
func (k *Kubelet) Adopt(ctx context.Context, nodes []corev1.Node) error {
	for i := range nodes {
		n := &nodes[i]
		k.adopt(ctx, n)
		if k.node(n.Name) == nil {
			if err := k.AddNode(ctx, n.Name, n.Labels[corev1.LabelTopologyZone]); err != nil {
				return err
			}
		}
	}
	return nil
}

// adopt switches a machine on for a Node without a kubelet, as large as the Node says. It goes when its Node goes, and
// never makes it again: that is for whoever made it first.
func (k *Kubelet) adopt(ctx context.Context, o *corev1.Node) {
	if o.Annotations[WithoutKubelet] == "" {
		return
	}
	n := newNode(k, o.Name, o.Labels[corev1.LabelTopologyZone])
	n.adopted, n.uid, n.registered = true, o.UID, true
	if len(o.Status.Allocatable) > 0 {
		n.resources = o.Status.Allocatable
	}
	k.switchOn(ctx, n) // unless it is on already: a node is told of when the lab starts, too
}
