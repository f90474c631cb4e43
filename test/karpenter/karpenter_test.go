package karpenter

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/test/scaling"
	"github.com/lockkeeper/lockkeeper/test/turns"
)

// pools are the situations, one node in each.
type pools struct {
	// What has nothing to hold it back: an empty node, one for which a smaller one would do, one that is not any more what
	// its NodePool says.
	empty, roomy, drifts *pool
	// A budget that allows nothing, over a pod that tolerates every taint: Karpenter neither asks for its eviction nor
	// waits for its end.
	deaf *pool
	// A budget that allows nothing, and do-not-disrupt on the node, or on a pod of it.
	spared, held, kept, pinned *pool
	// A budget, but a time after which Karpenter does not wait any more; the same where the guard of deletions is, and
	// with do-not-disrupt on the pod; and a node that is too old, with do-not-disrupt on the node as well.
	forced, guarded, urged, old *pool
}

// grace is the terminationGracePeriod of the NodePools that have one.
const grace = 12 * time.Second

func newPools() pools {
	return pools{
		empty:   &pool{name: "empty", consolidate: true, alone: true},
		roomy:   &pool{name: "roomy", consolidate: true},
		drifts:  &pool{name: "drifts"},
		deaf:    &pool{name: "deaf", tolerant: true},
		spared:  &pool{name: "spared", consolidate: true},
		held:    &pool{name: "held"},
		kept:    &pool{name: "kept", consolidate: true, grace: grace},
		pinned:  &pool{name: "pinned"},
		forced:  &pool{name: "forced", grace: grace},
		guarded: &pool{name: "guarded", grace: grace, namespace: "rook-ceph"},
		urged:   &pool{name: "urged", grace: grace},
		old:     &pool{name: "old", expireAfter: 25 * time.Second},
	}
}

func (p pools) all() []*pool {
	return []*pool{
		p.empty, p.roomy, p.drifts, p.deaf, p.spared, p.held, p.kept, p.pinned, p.forced, p.guarded, p.urged, p.old,
	}
}

// TestKarpenter has each of twelve nodes in another situation when Karpenter gets a reason to remove it.
func TestKarpenter(t *testing.T) {
	turns.Await(t, theReal.Name, 2*time.Minute)
	w := startKarpenter(t)
	p := newPools()
	w.prepare(p)

	// Now each of them has a reason to go.
	began := time.Now()
	for _, p := range []*pool{p.empty, p.roomy, p.spared} {
		w.leave(p, p.big())
	}
	for _, p := range []*pool{p.drifts, p.deaf, p.held, p.kept, p.pinned, p.forced, p.guarded, p.urged} {
		w.drift(p)
	}
	for _, p := range []*pool{p.forced, p.guarded, p.urged, p.old} {
		w.understood(p)
	}
	for _, p := range []*pool{p.empty, p.drifts, p.deaf, p.forced, p.urged, p.roomy} {
		w.Await(p.name+" goes", func() bool { return w.Journal.Has(p.node, scaling.Gone) })
		w.Await("its disk goes", func() bool { _, err := os.Stat(w.Folder(p.node)); return os.IsNotExist(err) })
	}
	w.beyondTheDeadline(p.guarded)
	w.stays(p.guarded)
	w.stays(p.old)
	w.report(began, p.all())
	for _, p := range []*pool{p.drifts, p.roomy, p.forced} {
		require.Positive(t, w.Journal.Between(p.node, scaling.Tainted, scaling.Deleted), "its successor is awaited")
	}
	for _, p := range []*pool{p.spared, p.held, p.kept, p.pinned} {
		require.False(t, w.Journal.Has(p.node, scaling.Tainted), p.name)
	}

	// What held them was what it was meant to be.
	began = time.Now()
	w.unguard(p.guarded)
	for _, p := range []*pool{p.old, p.held, p.kept} {
		w.allow(p)
	}
	w.Annotate(p.kept.node, doNotDisrupt, "")
	w.annotatePod(p.pinned, "")
	let := []*pool{p.guarded, p.old, p.held, p.kept, p.pinned}
	for _, p := range let {
		w.Await(p.name+" goes", func() bool { return w.Journal.Has(p.node, scaling.Gone) })
	}
	w.report(began, let)
	require.False(t, w.Journal.Has(p.spared.node, scaling.Tainted), "its budget is still there")
}

// prepare makes the nodes, and puts on them what may hold Karpenter back.
func (w world) prepare(p pools) {
	w.Helper()
	require.NoError(w, w.Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.guarded.namespace}}))
	began := time.Now()
	for _, p := range p.all() {
		w.create(p)
	}
	w.awaitRunning(p.all()...)
	w.Logf("%d nodes are there, and all pods run, after %s", len(p.all()), time.Since(began).Round(time.Millisecond))
	for _, p := range []*pool{p.deaf, p.spared, p.held, p.kept, p.forced, p.urged, p.old} {
		w.Forbid(p.ns(), p.small(), nil)
	}
	w.guard(p.guarded)
	for _, p := range []*pool{p.kept, p.old} {
		w.Annotate(p.node, doNotDisrupt, "true")
	}
	for _, p := range []*pool{p.pinned, p.urged} {
		w.annotatePod(p, "true")
	}
}

// guard has the budget over the small pod of a pool decide about deletions, too, as lockkeeper's own budgets do.
func (w world) guard(p *pool) {
	w.Helper()
	w.Forbid(p.ns(), p.small(), map[string]string{kube.LabelGuards: "deletions"})
	for _, file := range []string{"policy.yaml", "namespace.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../deploy/guard-deletions", file))
		require.NoError(w, err)
		w.apply(text)
	}
}

// understood: what Karpenter writes is what lockkeeper reads, of the node and of its NodeClaim.
func (w world) understood(p *pool) {
	w.Helper()
	cluster, err := kube.New(w.Config)
	require.NoError(w, err)
	w.Await(p.name+" is deleted and tainted", func() bool {
		return w.Journal.Has(p.node, scaling.Deleted) && w.Journal.Has(p.node, scaling.Tainted)
	})
	n, err := cluster.Node(w.Context(), p.node)
	require.NoError(w, err)
	require.True(w, n.Leaving.Disrupted, p.name)
	require.Equal(w, leaving.Deleting, n.Leaving.How(time.Now(), 0), p.name)
	require.Equal(w, leaving.DisruptedTaint, n.Tainted, p.name)
	at, ok := n.Leaving.Deadline()
	require.Equal(w, p.grace > 0, ok, p.name)
	if ok {
		require.WithinDuration(w, w.Journal.When(p.node, scaling.Deleted).Add(p.grace), at, 4*time.Second, p.name)
		require.Contains(w, n.Sight().Warning(time.Now()), "Karpenter removes the node", p.name)
	}
}

// beyondTheDeadline waits until Karpenter has tried to delete the pods of a node itself, and was refused.
func (w world) beyondTheDeadline(p *pool) {
	w.Helper()
	w.Await("Karpenter deletes its pods itself", func() bool {
		return time.Since(w.Journal.When(p.node, scaling.Deleted)) > p.grace+time.Second
	})
	log, err := os.ReadFile(filepath.Join(os.Getenv("LAB_HOME"), "default", "log", "karpenter.log"))
	require.NoError(w, err)
	require.Contains(w, string(log), "deleting expiring pods, deleting pod, pods")
	require.Contains(w, string(log), "has to wait for its turn")
}

// stays: the node is there, and its small pod runs on it.
func (w world) stays(p *pool) {
	w.Helper()
	require.False(w, w.Journal.Has(p.node, scaling.Gone), p.name)
	pods := w.Pods(p.ns(), p.small())
	require.Len(w, pods, 1)
	require.Equal(w, p.node, pods[0].Spec.NodeName)
	require.Equal(w, corev1.PodRunning, pods[0].Status.Phase)
}

// report says when what happened to the nodes.
func (w world) report(began time.Time, pools []*pool) {
	w.Helper()
	for _, p := range pools {
		line := p.name + ":"
		for _, e := range []scaling.Event{scaling.Tainted, scaling.Deleted, scaling.Rolled, scaling.Gone} {
			if at := w.Journal.When(p.node, e); !at.IsZero() {
				line += " " + string(e) + " after " + at.Sub(began).Round(time.Millisecond).String() + ";"
			}
		}
		w.Log(line)
	}
}
