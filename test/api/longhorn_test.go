package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/longhorn"
	"github.com/lockkeeper/lockkeeper/internal/longhorn/longhorncluster"
	"github.com/lockkeeper/lockkeeper/test/apiserver"
)

// TestLonghornIsInstalledLater: its absence has a name, and the same reader finds it when it is there. An object that
// makes no sense is named, and its node stays.
func TestLonghornIsInstalledLater(t *testing.T) {
	own, err := apiserver.Start(*root)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Stop()) })
	c, err := client.New(own.Config, client.Options{Scheme: kube.Scheme})
	require.NoError(t, err)
	reader := longhorncluster.New(c, "longhorn-system")
	_, err = reader.World(t.Context(), time.Now(), longhorncluster.Before{})
	require.ErrorIs(t, err, longhorncluster.ErrNotInstalled)

	_, err = envtest.InstallCRDs(own.Config, envtest.CRDInstallOptions{
		Paths: []string{"testdata/longhorn-crds.yaml"}, ErrorIfPathMissing: true,
	})
	require.NoError(t, err)
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "longhorn-system"}}))
	for _, name := range []string{"node-a", "node-b"} {
		require.NoError(t, c.Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Unschedulable: true},
		}))
	}
	for _, o := range []map[string]any{
		{"kind": "Setting", "metadata": map[string]any{"name": "current-longhorn-version"}, "value": "v1.10.0"},
		{
			"kind": "Replica", "metadata": map[string]any{"name": "r"},
			"spec": map[string]any{"nodeID": "node-a", "volumeName": map[string]any{"of": "v"}, "healthyAt": "2026"},
		},
	} {
		u := &unstructured.Unstructured{Object: o}
		u.SetAPIVersion("longhorn.io/v1beta2")
		u.SetNamespace("longhorn-system")
		require.NoError(t, c.Create(t.Context(), u))
	}
	w, err := reader.World(t.Context(), time.Now(), longhorncluster.Before{})
	require.NoError(t, err)
	d := longhorn.Decide(w)
	require.NotEmpty(t, d.Faults)
	require.Equal(t, `Replica r: spec.volumeName: "map[of:v]": allowed are text`, d.Faults[0].String())
	require.Equal(t, longhorn.Kept, d.Nodes[0].State)
	require.Equal(t, longhorn.Malformed, d.Nodes[0].Reason)
	require.Equal(t, longhorn.Open, d.Nodes[1].State)
}
