package kube

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestACordonIsTheirsWhoWroteItLast(t *testing.T) {
	wrote := func(manager, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	cordon, other := `{"f:spec":{"f:unschedulable":{}}}`, `{"f:spec":{"f:taints":{}}}`
	for name, test := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		theirs bool
	}{
		"nobody knows": {},
		"ours":         {fields: []metav1.ManagedFieldsEntry{wrote("kubectl", other), wrote(FieldOwner, cordon)}},
		"theirs": {
			fields: []metav1.ManagedFieldsEntry{wrote(FieldOwner, other), wrote("kubectl", cordon)},
			theirs: true,
		},
		"both wrote it":         {fields: []metav1.ManagedFieldsEntry{wrote("kubectl", cordon), wrote(FieldOwner, cordon)}},
		"what cannot be read":   {fields: []metav1.ManagedFieldsEntry{wrote("kubectl", `{`), {Manager: "kubelet"}}},
		"they wrote other ones": {fields: []metav1.ManagedFieldsEntry{wrote("kubectl", other)}},
	} {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{ManagedFields: test.fields},
			Spec:       corev1.NodeSpec{Unschedulable: true},
		}
		require.Equal(t, test.theirs, cordonedByAnother(n), name)
		n.Spec.Unschedulable = false
		require.False(t, cordonedByAnother(n), name)
	}
}
