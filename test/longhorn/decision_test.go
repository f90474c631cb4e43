package longhorn

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/internal/longhorn"
	"github.com/lockkeeper/lockkeeper/test/turns"
)

var patchOptions = metav1.PatchOptions{}

// TestRealLonghorn goes through the life of one volume: its steps build on each other. Longhorn's manager decides, too,
// beside the decision that is tried; only the last step takes its budgets away from it.
func TestRealLonghorn(t *testing.T) {
	turns.Await(t, "the real Longhorn", time.Minute)
	w := start(t)
	decides(w)
	oneWriter(w)
	keeper(w)
}

// decides compares the decision with what is there, and with what Longhorn's own manager makes of it.
func decides(w *world) {
	// Longhorn's setting is off: everything stays, in both minds.
	require.Equal(w, allNodes, w.kept())
	w.await("budgets for all", func() bool { return len(w.budgeted()) == 3 })

	// On, and nothing is there to be kept.
	w.set("kubernetes-cluster-autoscaler-enabled", "true")
	w.await("nothing is kept", func() bool { return len(w.kept()) == 0 && len(w.budgeted()) == 0 })
	require.True(w, w.decide().OneMore)

	// A volume that was never attached has no data.
	w.Lab("volume", "create", "vol", "--replicas", "2", "--size", "8Mi")
	require.Empty(w, w.kept())

	// Attached: its engine's node and its replicas' nodes stay. Longhorn itself keeps the engine's alone.
	w.Lab("volume", "attach", "vol", "node-a")
	require.Contains(w, w.kept(), "node-a")
	require.GreaterOrEqual(w, len(w.kept()), 2)
	require.Contains(w, w.explain("node-a"), "engine vol-e-0 runs here")
	w.await("Longhorn keeps the engine's node", func() bool { return len(w.budgeted()) == 1 })

	// Detached: one of the nodes with a replica keeps it, and remains the one.
	w.Lab("load", "start", "--volume", "vol")
	time.Sleep(time.Second)
	w.Lab("load", "stop")
	w.Lab("volume", "detach", "vol")
	w.await("one keeps it", func() bool { return len(w.kept()) == 1 })
	kept := w.kept()[0]
	require.Equal(w, []string{kept}, w.kept())
	w.await("Longhorn has one keep it, too", func() bool { return len(w.budgeted()) == 1 })

	// Cordoned, it is not relied on any more: the other one keeps the volume, and it may go.
	w.cordon(kept, true)
	w.await("it may go", func() bool { return state(w.decide(), kept) == longhorn.Open })
	other := w.kept()
	require.Len(w, other, 1)
	require.NotEqual(w, kept, other[0])

	// Both: neither may go, and it is said why.
	w.cordon(other[0], true)
	w.await("none may go", func() bool {
		return state(w.decide(), kept) == longhorn.Kept && state(w.decide(), other[0]) == longhorn.Kept
	})
	require.Contains(w, w.explain(kept), "volume vol has its last healthy replica here")

	// The policy that allows everything is the user's word.
	w.set("node-drain-policy", string(longhorn.AlwaysAllow))
	w.await("always-allow", func() bool { return state(w.decide(), kept) == longhorn.Open })
	require.Contains(w, w.explain(kept), "may lose their last replica")
	w.set("node-drain-policy", string(longhorn.BlockIfContainsLastReplica))
	w.cordon(kept, false)
	w.cordon(other[0], false)
	w.await("one keeps it", func() bool { return len(w.kept()) == 1 })
}

func state(d longhorn.Decision, node string) longhorn.State {
	for _, n := range d.Nodes {
		if n.Node == node {
			return n.State
		}
	}
	return ""
}
