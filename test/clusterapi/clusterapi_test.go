// Package clusterapi tries the holds of Machines against the real controllers of Cluster API, in a lab without Ceph:
// what Ceph would say is made up here.
package clusterapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/machines"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/barelab"
)

// storageNodes host two OSDs each; node-g hosts nothing.
var storageNodes = []string{"node-a", "node-b", "node-c", "node-d", "node-e", "node-f"}

// world is a lab with seven Machines, what is noted of holds, and what Ceph would say.
type world struct {
	*barelab.World
	holder   *machines.Holder
	noted    []fencing.Hold
	down     map[string]bool // nodes whose OSDs are down
	released []string
}

// TestHoldsAndReleases: two storage nodes and one without storage die together. The latter is replaced at once; of the
// others none goes before it is released, and then one after the other, and a Machine that a person deletes waits, too.
func TestHoldsAndReleases(t *testing.T) {
	w := start(t)
	w.settle()
	all, err := w.holder.Machines(t.Context())
	require.NoError(t, err)
	for _, m := range all {
		require.Equal(t, m.Node != "node-g" && m.Node != "", m.Held, m)
	}

	checks, err := w.holder.HealthChecks(t.Context())
	require.NoError(t, err)
	require.Len(t, checks, 1)
	require.Equal(t, "40%", checks[0].Limit)
	require.Equal(t, 5*time.Second, checks[0].Checks[0].Timeout)
	fences, err := fencing.Fences(checks[0].Limit, 7)
	require.NoError(t, err)
	require.True(t, fences)

	// Nothing holds a node without storage. It goes first, or three of seven would be too many for the health check.
	w.Lab("fault", "node-lost", "node-g")
	w.await("node-g is replaced", func() bool { return w.machine("node-g") == nil })

	// Two storage nodes die. Both Machines are deleted, and wait.
	for _, node := range []string{"node-a", "node-e"} {
		w.Lab("fault", "node-lost", node)
		w.down[node] = true
	}
	w.await("both wait", func() bool { return w.deleting("node-a") && w.deleting("node-e") })
	w.settle() // OSDs that are down end no hold
	time.Sleep(5 * time.Second)
	require.NotNil(t, w.machine("node-a"))
	require.NotNil(t, w.machine("node-e"))

	// They are released in turn, each when the one before is gone.
	for _, want := range []string{"node-a", "node-e"} {
		node, verdicts := w.choose()
		require.Equal(t, want, node)
		if want == "node-a" {
			require.Equal(t, fencing.ReasonAnotherReleased, verdicts["node-e"].Reason)
		}
		w.released = []string{node}
		w.settle()
		again, _ := w.choose()
		require.Empty(t, again)
		w.await(node+" is gone", func() bool { return w.machine(node) == nil })
		w.released = nil
		delete(w.down, node) // its OSDs are up elsewhere
	}
	w.settle()

	// A person deletes a Machine whose OSDs serve. It waits for the lease, as a drain would, and for nothing else
	// after.
	m := w.machine("node-b")
	w.remove(m.Name)
	w.await("it waits", func() bool { return w.deleting("node-b") })
	_, verdicts := w.choose()
	require.True(t, verdicts["node-b"].WantsLease(), verdicts["node-b"].Message)
	w.released = []string{"node-b"}
	w.settle()
	w.await("node-b is gone", func() bool { return w.machine("node-b") == nil })
	w.released = nil

	// The policy goes, and takes all of its holds with it.
	w.carryOut(fencing.PlanHolds(fencing.Rest{Machines: w.machines(), Noted: w.noted, Ending: true}))
	for _, m := range w.machines() {
		require.False(t, m.Held, m)
	}
	require.Empty(t, w.noted)
}

func start(t *testing.T) *world {
	t.Helper()
	barelab.Need(t, "Cluster API's controllers", "cluster-api", "cluster-api")
	w := &world{World: barelab.Up(t, "--temporal=false", "--machines=7"), down: map[string]bool{}}
	var err error
	w.holder, err = machines.For(w.Client, storage.ClusterKey{Namespace: "rook-ceph", Name: "ceph"},
		v1alpha1.FencingSpec{API: v1alpha1.FencingClusterAPI, Namespace: "machines"})
	require.NoError(t, err)
	return w
}

func (w *world) machines() []fencing.Machine {
	w.Helper()
	all, err := w.holder.Machines(w.Context())
	require.NoError(w, err)
	return all
}

func (w *world) machine(node string) *fencing.Machine {
	w.Helper()
	for _, m := range w.machines() {
		if m.Node == node {
			return &m
		}
	}
	return nil
}

func (w *world) deleting(node string) bool {
	m := w.machine(node)
	return m != nil && m.Deleting
}

// settle brings the holds to where a plan wants them.
func (w *world) settle() {
	w.Helper()
	r := fencing.Rest{
		Machines: w.machines(), Noted: w.noted, Hosted: map[string]fencing.Hosted{}, Known: true, Released: w.released,
	}
	for _, node := range storageNodes {
		h := fencing.Hosted{Daemons: 2, Running: 2}
		if w.down[node] {
			h.Running = 0
		}
		r.Hosted[node] = h
	}
	w.carryOut(fencing.PlanHolds(r))
}

func (w *world) carryOut(p fencing.Plan) {
	w.Helper()
	w.noted = append(w.noted, p.Note...)
	for _, m := range p.Set {
		require.NoError(w, w.holder.Set(w.Context(), m))
	}
	for _, m := range p.Remove {
		require.NoError(w, w.holder.Remove(w.Context(), m))
	}
	var rest []fencing.Hold
	for _, h := range w.noted {
		forgotten := false
		for _, f := range p.Forget {
			forgotten = forgotten || f == h
		}
		if !forgotten {
			rest = append(rest, h)
		}
	}
	w.noted = rest
}

// choose judges the Machines that are being deleted, by what Ceph would say.
func (w *world) choose() (string, map[string]fencing.Verdict) {
	w.Helper()
	f := fencing.Facts{Released: w.released, View: storage.View{FailureDomainType: "host"}}
	var targets []fencing.Target
	for _, node := range storageNodes {
		n := storage.Node{Name: node, Domain: node}
		d := storage.Domain{Name: node}
		for i := range 2 {
			name := fmt.Sprintf("osd.%s%d", strings.TrimPrefix(node, "node-"), i)
			n.Daemons = append(n.Daemons, name)
			if w.down[node] {
				d.Troubled = append(d.Troubled, storage.Daemon{Name: name, Node: node})
			}
		}
		f.View.Nodes, f.View.Domains = append(f.View.Nodes, n), append(f.View.Domains, d)
		f.AskedFor = append(f.AskedFor, node)
		if w.down[node] {
			f.Hurt = append(f.Hurt, storage.FailureDomain{Type: "host", Name: node})
		}
		if w.deleting(node) {
			targets = append(targets, fencing.Target{Node: node, Why: fencing.WhyDeleting})
		}
	}
	return fencing.Choose(f, targets)
}

func (w *world) remove(name string) {
	w.Helper()
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("cluster.x-k8s.io/v1beta1") // the older version, by Cluster API's own conversion
	o.SetKind("Machine")
	o.SetNamespace("machines")
	o.SetName(name)
	require.NoError(w, w.Delete(w.Context(), o, client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// await is patient: a MachineHealthCheck looks at its Machines every 15 s only.
func (w *world) await(what string, ok func() bool) {
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
