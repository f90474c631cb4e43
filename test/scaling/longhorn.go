package scaling

import (
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Longhorn's namespace, and its pods that serve the volumes of a node.
const (
	Longhorn         = "longhorn-system"
	InstanceManagers = "longhorn.io/component=instance-manager"
)

// Managers are the nodes whose instance managers run.
func (w *World) Managers() (nodes []string) {
	w.Helper()
	of := metav1.ListOptions{LabelSelector: InstanceManagers}
	pods, err := w.Typed.CoreV1().Pods(Longhorn).List(w.Context(), of)
	require.NoError(w, err)
	for _, p := range pods.Items {
		if s := p.Status.ContainerStatuses; p.DeletionTimestamp == nil && len(s) == 1 && s[0].Ready {
			nodes = append(nodes, p.Spec.NodeName)
		}
	}
	return nodes
}

// LonghornObject is an object of Longhorn's, of which nothing is known yet.
func LonghornObject(kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "longhorn.io", Version: "v1beta2", Kind: kind})
	o.SetNamespace(Longhorn)
	o.SetName(name)
	return o
}

// SetLonghorn changes an object of Longhorn's, whose webhook does not answer while its managers start.
func (w *World) SetLonghorn(kind, name, patch string) {
	w.Helper()
	w.Await(kind+" "+name+" is changed", func() bool {
		err := w.Patch(w.Context(), LonghornObject(kind, name), client.RawPatch(types.MergePatchType, []byte(patch)))
		if err != nil {
			w.Log(err)
		}
		return err == nil
	})
}
