package budget_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/guard"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// monsOf is the world at rest with mons on the first nodes, of which the named ones are out of quorum.
func monsOf(w *world, names string, out ...string) budget.Input {
	in := w.input()
	in.View.MonKey, in.View.Committed = "ceph_daemon_id", true
	for i, name := range names {
		m := storage.Mon{
			Name: string(name), Node: w.osds[i].Node, Domain: zones[i/perZone], InQuorum: true,
			Pod: storage.PodReady,
		}
		for _, o := range out {
			if o == m.Name {
				m.InQuorum = false
			}
		}
		in.View.Mons = append(in.View.Mons, m)
	}
	return in
}

func monClaim(name string) lease.Claim {
	return lease.Claim{WorkflowID: "migrate-mons/n/mons", RunID: "r", Domain: lease.Mon(name), Reason: "a move"}
}

func held(in budget.Input, c lease.Claim) budget.Input {
	in.Lease = lease.State{Token: 1, Holders: []lease.Claim{c}}
	return in
}

func TestMonClaimIsGrantedWhenAllIsQuiet(t *testing.T) {
	assert.True(t, budget.LeaseGate(monsOf(atRest(), "abc"), monClaim("a")).OK)
	assert.True(t, budget.LeaseGate(monsOf(atRest(), "abc", "a"), monClaim("a")).OK, "its own mon may be out")
	assert.True(t, budget.LeaseGate(monsOf(atRest(), "abc"), monClaim("d")).OK, "a newcomer")
	assert.Contains(t, budget.LeaseGate(monsOf(atRest(), "abc", "b"), monClaim("a")).Reason, "mon.b")
	assert.False(t, budget.LeaseGate(monsOf(atRest(), ""), monClaim("a")).OK, "nobody knows the mons")
	w := atRest()
	w.in.Health.Clean = false
	w.osds[0].Up = false
	w.touched = []string{"x"}
	assert.False(t, budget.LeaseGate(monsOf(w, "abc"), monClaim("a")).OK, "somebody is in the middle of a drain")
}

func TestMonClaimOpensNothingButItsMon(t *testing.T) {
	d := budget.Decide(held(monsOf(atRest(), "abc"), monClaim("a")))
	assert.Equal(t, budget.ModeDefault, d.Mode)
	assert.Equal(t, []string{"a"}, d.Mons.Except)
	w := atRest()
	w.cordoned = []string{"b"}
	d = budget.Decide(held(monsOf(w, "abc"), monClaim("a")))
	assert.NotEqual(t, budget.ModeOpen, d.Mode, "a cordon opens nothing meanwhile: its mon would have to stay")
	assert.Equal(t, []string{"a"}, d.Mons.Except)
	d = budget.Decide(held(monsOf(atRest(), "abc", "b"), monClaim("a")))
	assert.Empty(t, d.Mons.Except, "without mon.a there would be no quorum")
	d = budget.Decide(held(monsOf(atRest(), "abc"), monClaim("d")))
	assert.Empty(t, d.Mons.Except, "while one joins nobody goes")
}

func TestMonClaimKeepsOthersAway(t *testing.T) {
	in := held(monsOf(atRest(), "abc"), monClaim("a"))
	a := guard.WouldGrant(ceph, guarded(in), lease.Claim{WorkflowID: "drain/b", RunID: "r2", Domain: zone("x"), Node: "b"})
	assert.False(t, a.OK)
	assert.Contains(t, a.Reason, "holds mon a")
	assert.Empty(t, guard.Revoked(ceph, guarded(in)),
		"a mon is no failure domain of the pools, and its claim stays all the same")
	assert.True(t, budget.Healed(in, monClaim("a")).OK)
	assert.False(t, budget.Healed(monsOf(atRest(), "abc", "a"), monClaim("a")).OK, "it is to be in quorum again")
	assert.True(t, budget.Healed(monsOf(atRest(), "bcd"), monClaim("a")).OK, "it has left the monmap")
}

// What has left the monmap, or has not joined it yet, nobody needs: its pod may go where deletions are guarded.
func TestStrayMonsMayGo(t *testing.T) {
	in := monsOf(atRest(), "abc")
	in.View.StrayMons = []string{"z"}
	assert.Equal(t, []string{"z"}, budget.Decide(in).Mons.Except)
}
