package kube

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/fake"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
)

// TestKarpenterPassesOver: a daemon that tolerates every taint, and a node that has a deadline, are found; those on
// nodes that are not Karpenter's do not matter.
func TestKarpenterPassesOver(t *testing.T) {
	claim := func(name, grace string) *unstructured.Unstructured {
		c := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
		c.SetGroupVersionKind(nodeClaims)
		c.SetName(name)
		if grace != "" {
			require.NoError(t, unstructured.SetNestedField(c.Object, grace, "spec", "terminationGracePeriod"))
		}
		return c
	}
	node := func(name, claim string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if claim != "" {
			n.OwnerReferences = []metav1.OwnerReference{{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: claim}}
		}
		return n
	}
	pod := func(name, app, node string, tolerations ...corev1.Toleration) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ceph", Name: name, Labels: map[string]string{"app": app}},
			Spec:       corev1.PodSpec{NodeName: node, Tolerations: tolerations},
		}
	}
	all := corev1.Toleration{Operator: corev1.TolerationOpExists}
	own := corev1.Toleration{Key: "storage", Operator: corev1.TolerationOpExists}
	typed := fake.NewClientset(
		node("n0", ""), node("n1", "claim-1"), node("n2", "claim-2"), node("n3", "claim-3"), node("n4", "claim-4"),
		pod("osd-0", "rook-ceph-osd", "n0", all), pod("osd-1", "rook-ceph-osd", "n1", own),
		pod("osd-2", "rook-ceph-osd", "n2", own, all), pod("osd-3", "rook-ceph-osd", "n2", own),
		pod("mon-a", "rook-ceph-mon", "n3", all), pod("web", "web", "n4", all),
	)
	api := fakeclient.NewClientBuilder().WithObjects(claim("claim-1", "48h"), claim("claim-2", "")).Build()
	p := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ceph", Name: "p"}}
	k, err := NewFor(typed, api).Karpenter(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, Karpenter{
		Nodes: []string{"n1", "n2", "n3"}, Tolerant: []string{"mon-a", "osd-2"}, Hurried: []string{"n1"},
	}, k)
}
