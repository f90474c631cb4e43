// Package clusterapi tries the holds of Machines against the real controllers of Cluster API, in a lab without Ceph:
// what Ceph would say is made up here.
package clusterapi

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/machines"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/barelab"
)

// storageNodes host two OSDs each; node-g hosts nothing.
var storageNodes = []string{"node-a", "node-b", "node-c", "node-d", "node-e", "node-f"}

// world is a lab with seven Machines, and what Ceph would say of it.
type world struct{ *barelab.Storage }

// TestHoldsAndReleases: two storage nodes and one without storage die together. The latter is replaced at once; of the
// others none goes before it is released, and then one after the other, and a Machine that a person deletes waits, too.
func TestHoldsAndReleases(t *testing.T) {
	w := start(t)
	w.Settle()
	all, err := w.Holder.Machines(t.Context())
	require.NoError(t, err)
	for _, m := range all {
		require.Equal(t, m.Node != "node-g" && m.Node != "", m.Held, m)
	}

	checks, err := w.Holder.HealthChecks(t.Context())
	require.NoError(t, err)
	newer := w.World.Store(ofClusterAPI, storageNodes...).Holder
	sameMachines, err := newer.Machines(t.Context())
	require.NoError(t, err)
	require.ElementsMatch(t, all, sameMachines)
	sameChecks, err := newer.HealthChecks(t.Context())
	require.NoError(t, err)
	require.Equal(t, checks, sameChecks)
	require.Len(t, checks, 1)
	require.Equal(t, "40%", checks[0].Limit)
	require.Equal(t, 5*time.Second, checks[0].Checks[0].Timeout)
	fences, err := fencing.Fences(checks[0].Limit, 7)
	require.NoError(t, err)
	require.True(t, fences)

	// Nothing holds a node without storage. It goes first, or three of seven would be too many for the health check.
	w.Lab("fault", "node-lost", "node-g")
	w.await("node-g is replaced", func() bool { return w.Machine("node-g") == nil })

	// Two storage nodes die. Both Machines are deleted, and wait.
	for _, node := range []string{"node-a", "node-e"} {
		w.Lab("fault", "node-lost", node)
		w.Down[node] = true
	}
	w.await("both wait", func() bool { return w.Deleting("node-a") && w.Deleting("node-e") })
	w.Settle() // OSDs that are down end no hold
	time.Sleep(5 * time.Second)
	require.NotNil(t, w.Machine("node-a"))
	require.NotNil(t, w.Machine("node-e"))

	// They are released in turn, each when the one before is gone.
	for _, want := range []string{"node-a", "node-e"} {
		node, verdicts := w.choose()
		require.Equal(t, want, node)
		if want == "node-a" {
			require.Equal(t, fencing.ReasonAnotherReleased, verdicts["node-e"].Reason)
		}
		w.Released = []string{node}
		w.Settle()
		again, _ := w.choose()
		require.Empty(t, again)
		w.await(node+" is gone", func() bool { return w.Machine(node) == nil })
		w.Released = nil
		delete(w.Down, node) // its OSDs are up elsewhere
	}
	w.Settle()

	// A person deletes a Machine whose OSDs serve. It waits for the lease, as a drain would, and for nothing else
	// after. So does one of the control plane that hosts storage.
	w.ofControlPlane("node-c")
	for _, node := range []string{"node-b", "node-c"} {
		w.remove(w.Machine(node).Name)
		w.await("it waits", func() bool { return w.Deleting(node) })
		_, verdicts := w.choose()
		require.True(t, verdicts[node].WantsLease(), verdicts[node].Message)
		w.Released = []string{node}
		w.Settle()
		w.await(node+" is gone", func() bool { return w.Machine(node) == nil })
		w.Released = nil
	}

	// The policy goes, and takes all of its holds with it.
	w.End()
}

var ofClusterAPI = v1alpha1.FencingSpec{API: v1alpha1.FencingClusterAPI, Namespace: "machines"}

// start has lockkeeper use the older version of the API, by Cluster API's own conversion. The scenarios use the newer.
func start(t *testing.T) world {
	t.Helper()
	barelab.Need(t, "Cluster API's controllers", "cluster-api", "cluster-api")
	lab := barelab.Up(t, "--temporal=false", "--machines=7")
	of := lab.Store(ofClusterAPI, storageNodes...)
	holder, err := machines.For(older{lab.Client}, storage.ClusterKey{Namespace: "rook-ceph", Name: "ceph"}, ofClusterAPI)
	require.NoError(t, err)
	of.Holder = holder
	return world{of}
}

// older is a client of an API server whose Cluster API has no v1beta2.
type older struct{ client.Client }

func (o older) RESTMapper() meta.RESTMapper { return olderMapper{o.Client.RESTMapper()} }

type olderMapper struct{ meta.RESTMapper }

func (m olderMapper) RESTMapping(k schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return m.RESTMapper.RESTMapping(k, slices.DeleteFunc(slices.Clone(versions), func(v string) bool {
		return v == "v1beta2"
	})...)
}

// choose judges the Machines that are being deleted.
func (w world) choose() (string, map[string]fencing.Verdict) {
	w.Helper()
	var deleting []string
	for _, node := range storageNodes {
		if w.Deleting(node) {
			deleting = append(deleting, node)
		}
	}
	return w.Choose(fencing.WhyDeleting, deleting...)
}

func (w world) remove(name string) {
	w.Helper()
	require.NoError(w, w.Delete(w.Context(), machine(name), client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// ofControlPlane has Cluster API take a node for one of the control plane, which has another one.
func (w world) ofControlPlane(node string) {
	w.Helper()
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"cluster.x-k8s.io/control-plane":""}}}`))
	require.NoError(w, w.Patch(w.Context(), machine(w.Machine(node).Name), label))
}

// machine is one by the older version, by Cluster API's own conversion.
func machine(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("cluster.x-k8s.io/v1beta1")
	o.SetKind("Machine")
	o.SetNamespace("machines")
	o.SetName(name)
	return o
}

// await is patient: a MachineHealthCheck looks at its Machines every 15 s only.
func (w world) await(what string, ok func() bool) {
	w.Helper()
	began := time.Now()
	for ; time.Since(began) < 2*time.Minute; time.Sleep(200 * time.Millisecond) {
		if ok() {
			w.Logf("%s after %s", what, time.Since(began).Round(100*time.Millisecond))
			return
		}
	}
	require.Fail(w, "not within two minutes: "+what)
}
