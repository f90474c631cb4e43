package api

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// TestRookVersion: the API server notes who wrote what. Rook writes all of a Deployment; whoever changes the image
// afterwards leaves its label as it was.
func TestRookVersion(t *testing.T) {
	labels := map[string]string{"app": "rook-ceph-mon"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "of-rook", Labels: map[string]string{
		"app": "rook-ceph-mon", kube.RookVersionLabel: "18.2.7-0",
	}}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "mon", Image: "ceph:18"}, {Name: "log", Image: "ceph:18"}}
	require.NoError(t, server.Create(t.Context(), d, client.FieldOwner("rook")))
	t.Cleanup(func() { _ = server.Delete(context.Background(), d) })
	version := func() string {
		require.NoError(t, server.Get(t.Context(), client.ObjectKeyFromObject(d), d))
		return kube.RookVersion(&d.ObjectMeta, &d.Spec.Template.Spec)
	}
	write := func(who, image, label string) {
		d.Spec.Template.Spec.Containers[0].Image, d.Labels[kube.RookVersionLabel] = image, label
		require.NoError(t, server.Update(t.Context(), d, client.FieldOwner(who)))
	}
	require.Equal(t, "18.2.7-0", version())
	d.Annotations = map[string]string{"by": "somebody"}
	require.NoError(t, server.Update(t.Context(), d, client.FieldOwner("kubectl-annotate")))
	require.Equal(t, "18.2.7-0", version(), "somebody else may write what he likes beside it")
	write("kubectl-set", "ceph:16", "18.2.7-0")
	require.Empty(t, version(), "the image is somebody else's")
	write("rook", "ceph:20", "20.2.4-0")
	require.Equal(t, "20.2.4-0", version())
}
