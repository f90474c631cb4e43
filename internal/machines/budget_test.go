package machines

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestBudgetWhereDisksGo: a number does not say which Machine may go. So where disks go with one that an OSD cannot do
// without, the budget lets nobody go, and each goes as it is released.
func TestBudgetWhereDisksGo(t *testing.T) {
	machine := schema.GroupVersionKind{Group: openShiftGroup, Version: "v1beta1", Kind: "Machine"}
	budget := schema.GroupVersionKind{Group: budgetKinds[0].Group, Version: "v1alpha1", Kind: budgetKinds[0].Kind}
	for name, c := range map[string]struct {
		provider string
		pinned   bool
		never    bool
	}{
		"metal is started again":         {"baremetalhost:///a", true, false},
		"a cloud, and disks of its zone": {"aws:///a", false, false},
		"a cloud, and disks of the node": {"aws:///a", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			require.NoError(t, corev1.AddToScheme(scheme))
			require.NoError(t, v1alpha1.AddToScheme(scheme))
			mapper := meta.NewDefaultRESTMapper(nil)
			for _, k := range []schema.GroupVersionKind{machine, budget} {
				mapper.Add(k, meta.RESTScopeNamespace)
				scheme.AddKnownTypeWithName(k, &unstructured.Unstructured{})
				scheme.AddKnownTypeWithName(k.GroupVersion().WithKind(k.Kind+"List"), &unstructured.UnstructuredList{})
			}
			policy := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "main"}}
			osds := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rook-ceph-osd"}}
			policy.Spec.Ceph = &v1alpha1.CephSpec{}
			policy.Spec.Ceph.OSDs.Selector = osds
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "osd", Labels: osds.MatchLabels}}
			if pod.Spec.NodeName = "node-a"; c.pinned {
				pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node-a"}
			}
			m := &unstructured.Unstructured{Object: map[string]any{
				"spec":   map[string]any{"providerID": c.provider},
				"status": map[string]any{"nodeRef": map[string]any{"name": "node-a"}},
			}}
			m.SetGroupVersionKind(machine)
			m.SetNamespace("machines")
			m.SetName("a")
			f := Fencer{fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(policy, pod, m).Build()}
			key := storage.ClusterKey{Namespace: "rook-ceph", Name: "main"}
			spec := storage.Fencing{API: fencing.APIBudget, Namespace: "machines"}
			says, err := f.Budget(t.Context(), key, spec)
			require.NoError(t, err)
			require.Equal(t, c.never, says.Never)
			one := 1
			require.NoError(t, f.SetMax(t.Context(), key, spec, &one))
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(budget)
			require.NoError(t, f.Client.Get(t.Context(), client.ObjectKey{Namespace: "machines", Name: "main"}, o))
			_, limited, _ := unstructured.NestedInt64(o.Object, "spec", "maxUnavailable")
			require.Equal(t, !c.never, limited)
		})
	}
}
