package guard_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/guard"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestTheOutrankedGiveWay: a drain holds the lease and cannot begin, since a node elsewhere is lost and held back. The
// fence of that node waits for the lease, and could have it.
func TestTheOutrankedGiveWay(t *testing.T) {
	t.Parallel()
	fence := claimOf("b")
	fence.WorkflowID, fence.Priority = "fence/b", lease.PriorityFencing
	for name, c := range map[string]struct {
		but  func(g *pairs, in *guard.Input)
		want bool
	}{
		"it gives way":             {func(*pairs, *guard.Input) {}, true},
		"nobody is held back":      {func(_ *pairs, in *guard.Input) { in.HeldBack = nil }, false},
		"it can go":                {func(g *pairs, _ *guard.Input) { delete(g.refused, "a") }, false},
		"the other one could not":  {func(g *pairs, _ *guard.Input) { g.refused["b"] = true }, false},
		"they go together":         {func(g *pairs, _ *guard.Input) { g.apart = nil }, false},
		"something is open":        {func(_ *pairs, in *guard.Input) { in.Open = storage.FailureDomain{Name: "a"} }, false},
		"something of it has gone": {func(_ *pairs, in *guard.Input) { in.View.Nodes[0].Down = []string{"osd.1"} }, false},
		"of its own lost node": {func(_ *pairs, in *guard.Input) {
			in.View.Nodes[0].Down, in.View.Nodes[0].Lost = []string{"osd.1"}, 1
			in.HeldBack = append(in.HeldBack, "a")
		}, true},
		"of a node that is not lost": {func(_ *pairs, in *guard.Input) {
			in.View.Nodes[0].Down = []string{"osd.1"}
			in.HeldBack = append(in.HeldBack, "a")
		}, false},
		"nothing is known of it": {func(_ *pairs, in *guard.Input) { in.View.Unavailable = "no quorum" }, false},
		"it is done":             {func(_ *pairs, in *guard.Input) { in.Lease.Holders[0].Finishing = true }, false},
		"it only observes":       {func(_ *pairs, in *guard.Input) { in.Lease.Holders[0].Observing = true }, true},
		"it is as urgent": {
			func(_ *pairs, in *guard.Input) { in.Lease.Holders[0].Priority = lease.PriorityFencing }, false,
		},
		"another holder has its way": {
			func(_ *pairs, in *guard.Input) { in.Lease.Holders = append(in.Lease.Holders, claimOf("c")) }, false,
		},
	} {
		g := pairs{apart: map[string]bool{"ab": true}, refused: map[string]bool{"a": true}, whole: map[string]bool{}}
		var in guard.Input
		in.Now, in.HeldBack = now, []string{"b"}
		holder := claimOf("a")
		holder.Granted = now.Add(-time.Minute)
		in.Lease = lease.State{Holders: []lease.Claim{holder}, Queue: []lease.Claim{fence}}
		in.View.Nodes = []storage.Node{{Name: "a", Daemons: []string{"osd.1"}}, {Name: "c", Daemons: []string{"osd.2"}}}
		c.but(&g, &in)
		out := guard.Revoked(g, in)
		require.Equal(t, c.want, len(out) == 1, "%s: %v", name, out)
		if c.want {
			require.Equal(t, "fence/b goes first, with a higher priority (fencing)", out[0].WaitsFor)
			require.Equal(t, "drain/a", out[0].WorkflowID)
		}
	}
}
