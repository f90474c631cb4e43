package machines

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestNobodyServesTheMachines: a fence can tell an API that is not there, through which nothing is held, from one that
// does not answer.
func TestNobodyServesTheMachines(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	f := Fencer{fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(meta.NewDefaultRESTMapper(nil)).Build()}
	_, err := f.Patient(t.Context(), storage.ClusterKey{Namespace: "rook-ceph", Name: "main"},
		storage.Fencing{API: fencing.APIBudget, Namespace: "machines"}, "node-a")
	require.ErrorIs(t, err, activities.ErrNotFound)
	require.ErrorContains(t, err, "the API server does not serve it")
}
