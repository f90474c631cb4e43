package kube

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lockkeeper/lockkeeper/internal/leaving"
)

// TestDeadlineOfANode: it is read from the NodeClaim of a node that leaves.
func TestDeadlineOfANode(t *testing.T) {
	const deadline = "2026-11-26T13:00:00Z"
	claim := &unstructured.Unstructured{}
	claim.SetGroupVersionKind(nodeClaims)
	claim.SetName("storage-x7k2p")
	claim.SetAnnotations(map[string]string{leaving.DeadlineAnnotation: deadline})
	broken := errors.New("etcd is away")
	resource := schema.GroupResource{Group: "karpenter.sh", Resource: "nodeclaims"}
	owner := metav1.OwnerReference{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: claim.GetName()}
	disrupted := []corev1.Taint{{Key: leaving.DisruptedTaint}}
	for name, c := range map[string]struct {
		owners  []metav1.OwnerReference
		taints  []corev1.Taint
		refused error // the request for the NodeClaim
		want    string
		err     error
	}{
		"it leaves":             {owners: []metav1.OwnerReference{owner}, taints: disrupted, want: deadline},
		"it stays":              {owners: []metav1.OwnerReference{owner}, refused: broken},
		"it is not Karpenter's": {taints: disrupted, refused: broken},
		"its NodeClaim is gone": {
			owners: []metav1.OwnerReference{owner}, taints: disrupted, refused: apierrors.NewNotFound(resource, "storage-x7k2p"),
		},
		"the rights are older": {
			owners: []metav1.OwnerReference{owner}, taints: disrupted,
			refused: apierrors.NewForbidden(resource, "storage-x7k2p", nil),
		},
		"nobody knows": {owners: []metav1.OwnerReference{owner}, taints: disrupted, refused: broken, err: broken},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", OwnerReferences: c.owners}}
		n.Spec.Taints = c.taints
		api := fakeclient.NewClientBuilder().WithObjects(claim).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(
				ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption,
			) error {
				if c.refused != nil {
					return c.refused
				}
				return api.Get(ctx, key, o, options...)
			},
		}).Build()
		got, err := NewFor(fake.NewClientset(n), api).Node(t.Context(), "node-a")
		require.ErrorIs(t, err, c.err, name)
		require.Equal(t, c.want, got.Leaving.Until, name)
	}
}
