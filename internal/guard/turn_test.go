package guard_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/guard"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestTurns is the table of who gives its turn to others, and when.
func TestTurns(t *testing.T) {
	g := pairs{apart: map[string]bool{"ab": true}}
	rest := func() guard.Input {
		a, b := claimOf("a"), claimOf("b")
		a.Granted, a.Token, a.Turn = now, 1, time.Minute
		return guard.Input{Input: budget.Input{
			Now: now.Add(time.Minute), Lease: lease.State{Token: 1, Holders: []lease.Claim{a}, Queue: []lease.Claim{b}},
			View: storage.View{Nodes: []storage.Node{{Name: "a", Daemons: []string{"x"}}}},
		}}
	}
	for name, c := range map[string]struct {
		change func(*guard.Input)
		gives  bool
		next   time.Time // what time alone will change
	}{
		"its time is over": {func(*guard.Input) {}, true, time.Time{}},
		"not yet": {
			func(in *guard.Input) { in.Now = in.Now.Add(-time.Second) }, false, now.Add(time.Minute),
		},
		"nobody waits":             {func(in *guard.Input) { in.Lease.Queue = nil }, false, time.Time{}},
		"who waits goes beside it": {func(in *guard.Input) { in.Lease.Queue[0].Node = "c" }, false, time.Time{}},
		"it has no turn":           {func(in *guard.Input) { in.Lease.Holders[0].Turn = 0 }, false, time.Time{}},
		"its work is done":         {func(in *guard.Input) { in.Lease.Holders[0].Finishing = true }, false, time.Time{}},
		"it is in reserve":         {func(in *guard.Input) { in.Lease.Holders[0].Reserve = time.Hour }, false, time.Time{}},
		"a daemon went down":       {func(in *guard.Input) { in.View.Nodes[0].Down = []string{"x"} }, false, time.Time{}},
		"its daemons are gone":     {func(in *guard.Input) { in.View.Nodes[0].Daemons = nil }, false, time.Time{}},
		"it is deleted":            {func(in *guard.Input) { in.View.Nodes[0].Gone = true }, false, time.Time{}},
		"it is not seen":           {func(in *guard.Input) { in.View.Nodes = nil }, false, time.Time{}},
		"nothing is known":         {func(in *guard.Input) { in.View.Unavailable = "silent" }, false, time.Time{}},
	} {
		in := rest()
		c.change(&in)
		revoked := guard.Revoked(g, in)
		if assert.Equal(t, c.gives, len(revoked) == 1, name) && c.gives {
			assert.Equal(t, "drain/a", revoked[0].WorkflowID)
			assert.Contains(t, revoked[0].WaitsFor, "no daemon of a went down")
		}
		if in.Lease.Holders[0].Reserve == 0 {
			assert.Equal(t, c.next, guard.NextRevoked(g, in), name)
		}
	}
}

// TestTurnOf: the turns of a job that only takes up time become longer, up to a bound.
func TestTurnOf(t *testing.T) {
	var got []time.Duration
	for ended := range 7 {
		got = append(got, lease.TurnOf(time.Minute, ended)/time.Minute)
	}
	assert.Equal(t, []time.Duration{1, 2, 4, 8, 16, 16, 16}, got)
}
