package kube

import (
	"context"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
)

// This file looks for what Karpenter passes over when it takes away a node with storage: docs/karpenter.md.

// Karpenter is what it does not ask the budgets of a policy's daemons about. Names are sorted.
type Karpenter struct {
	// Nodes are those of Karpenter's that host daemons.
	Nodes []string
	// Tolerant are pods there that tolerate its taint: it neither evicts them nor waits for their end.
	Tolerant []string
	// Hurried are nodes there whose NodeClaim has a terminationGracePeriod: at its end their pods are deleted.
	Hurried []string
}

// Karpenter looks at the nodes that host the policy's daemons. Without Karpenter there are none of its own.
func (c *Cluster) Karpenter(ctx context.Context, p *v1alpha1.MaintenancePolicy) (k Karpenter, err error) {
	nodes, err := c.typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return k, err
	}
	claims := map[string]string{} // of which node
	for i := range nodes.Items {
		if claim := leaving.NodeClaim(&nodes.Items[i]); claim != "" {
			claims[nodes.Items[i].Name] = claim
		}
	}
	if len(claims) == 0 {
		return k, nil
	}
	daemons, err := c.daemonPods(ctx, p)
	if err != nil {
		return k, err
	}
	for i := range daemons {
		pod := &daemons[i]
		node := pod.Spec.NodeName
		if claims[node] == "" {
			continue
		}
		if toleratesKarpenter(pod) {
			k.Tolerant = append(k.Tolerant, pod.Name)
		}
		if slices.Contains(k.Nodes, node) {
			continue
		}
		k.Nodes = append(k.Nodes, node)
		hurried, err := c.hurried(ctx, claims[node])
		if err != nil {
			return k, err
		}
		if hurried {
			k.Hurried = append(k.Hurried, node)
		}
	}
	slices.Sort(k.Nodes)
	slices.Sort(k.Tolerant)
	slices.Sort(k.Hurried)
	return k, nil
}

// daemonPods are the pods over which lockkeeper has budgets by failure domain or quorum.
func (c *Cluster) daemonPods(ctx context.Context, p *v1alpha1.MaintenancePolicy) (out []corev1.Pod, err error) {
	var selectors []labels.Selector
	for _, s := range []*metav1.LabelSelector{OSDSelector(p), MonSelector(p)} {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			return nil, err
		}
		selectors = append(selectors, selector)
	}
	list, err := c.typed.CoreV1().Pods(p.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		pod := &list.Items[i]
		covered := func(s labels.Selector) bool { return s.Matches(labels.Set(pod.Labels)) }
		if !ended(pod) && slices.ContainsFunc(selectors, covered) {
			out = append(out, *pod)
		}
	}
	return out, nil
}

func toleratesKarpenter(pod *corev1.Pod) bool {
	taint := corev1.Taint{Key: leaving.DisruptedTaint, Effect: corev1.TaintEffectNoSchedule}
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(logr.Discard(), &taint, false)
	})
}

// hurried: the NodeClaim has a terminationGracePeriod. One that is gone has none.
func (c *Cluster) hurried(ctx context.Context, name string) (bool, error) {
	claim := &unstructured.Unstructured{}
	claim.SetGroupVersionKind(nodeClaims)
	if err := c.api.Get(ctx, client.ObjectKey{Name: name}, claim); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	_, found, err := unstructured.NestedString(claim.Object, "spec", "terminationGracePeriod")
	return found, err
}
