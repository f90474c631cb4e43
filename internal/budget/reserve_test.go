package budget_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/flags"
	"github.com/lockkeeper/lockkeeper/internal/guard"
	"github.com/lockkeeper/lockkeeper/internal/lease"
)

// TestNothingOpensForAClaimInReserve: whatever the world is like, the decision is that of a world in which the job
// still waits; no noout is set; no node counts as being emptied.
func TestNothingOpensForAClaimInReserve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawWorld(t).input()
		c := lease.Claim{
			WorkflowID: "drain/r", RunID: "1", Domain: zone(rapid.SampledFrom(zones).Draw(t, "reserved")), Node: "a",
			Granted: in.Now, Token: 1, Reserve: lease.FirstReserve, Ready: rapid.Bool().Draw(t, "ready"),
			FlagHosts: []string{"a"}, Requested: in.Now,
		}
		in.Lease.Holders = nil
		waits := in
		waits.Lease.Queue = slices.Concat([]lease.Claim{c}, in.Lease.Queue)
		in.Lease.Holders = []lease.Claim{c}
		if is, should := budget.Decide(in), budget.Decide(waits); !sameJSON(is, should) {
			t.Fatalf("held in reserve %+v, while it waits %+v", is, should)
		}
		p := flags.Decide(flags.Input{Now: in.Now, Timeout: time.Hour, Holders: in.Lease.Holders})
		if len(p.Set)+len(p.Records) > 0 {
			t.Fatalf("flags: %+v", p)
		}
		if nodes := budget.GrantedNodes(in.Lease); len(nodes) > 0 {
			t.Fatalf("%v are emptied", nodes)
		}
		in.Now = in.Now.Add(24 * time.Hour)
		if budget.Parked(in, c) {
			t.Fatal("it is parked")
		}
	})
}

// TestReserveGoesBack: when somebody waits for another failure domain, and then as soon as its time is over.
func TestReserveGoesBack(t *testing.T) {
	in := atRest().input()
	in.Lease.Holders = []lease.Claim{{
		WorkflowID: "drain/r", RunID: "1", Domain: zone("x"), Granted: now, Token: 1, Reserve: 2 * time.Minute,
	}}
	at := func(after time.Duration) []lease.Claim {
		in.Now = now.Add(after)
		return guard.Revoked(ceph, guarded(in))
	}
	require.Empty(t, at(time.Hour), "nobody waits")
	in.Lease.Queue = []lease.Claim{{WorkflowID: "drain/q", RunID: "1", Domain: zone("y")}}
	require.Empty(t, at(2*time.Minute-1))
	assert.Equal(t, now.Add(2*time.Minute), budget.NextTimer(in, nil, nil))
	back := at(2 * time.Minute)
	require.Len(t, back, 1)
	assert.Equal(t, "others wait for it, and in 2m0s the job did not get the lease of another storage cluster that it "+
		"needs as well", back[0].WaitsFor)
	in.Lease.Holders[0].Ready = true
	require.Empty(t, at(time.Hour), "the job has all that it needs")
}
