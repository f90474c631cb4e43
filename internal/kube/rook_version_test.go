package kube_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// TestRookVersion: the label counts only from who wrote the image.
func TestRookVersion(t *testing.T) {
	const (
		label = `"f:metadata":{"f:labels":{"f:app":{},"f:ceph-version":{}}}`
		image = `"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"mon\"}":{".":{},"f:image":{}}}}}}`
		other = `"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"log\"}":{".":{},"f:image":{}}}}}}`
	)
	template := &corev1.PodSpec{Containers: []corev1.Container{{Name: "log"}, {Name: "mon"}}}
	for name, test := range map[string]struct {
		fields []string
		want   string
	}{
		"by the operator":             {[]string{`{"f:status":{}}`, "{" + label + "," + image + "}"}, "18.2.7-0"},
		"the image by somebody since": {[]string{"{" + label + "}", "{" + image + "}"}, ""},
		"of another container":        {[]string{"{" + label + "," + other + "}"}, ""},
		"nobody is known":             {nil, ""},
		"not to be read":              {[]string{"{"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := metav1.ObjectMeta{Labels: map[string]string{kube.RookVersionLabel: "18.2.7-0"}}
			for _, f := range test.fields {
				entry := metav1.ManagedFieldsEntry{Manager: "rook", FieldsV1: metav1.NewFieldsV1(f)}
				m.ManagedFields = append(m.ManagedFields, entry)
			}
			require.Equal(t, test.want, kube.RookVersion(&m, template))
			for i := range m.ManagedFields {
				m.ManagedFields[i].Manager = "helm"
			}
			require.Empty(t, kube.RookVersion(&m, template), "of others nobody knows that they wrote both at once")
			m.Labels = nil
			require.Empty(t, kube.RookVersion(&m, template))
			require.Empty(t, kube.RookVersion(&m, &corev1.PodSpec{}))
		})
	}
}
