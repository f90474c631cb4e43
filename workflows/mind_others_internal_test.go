package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestBudgetsOfOthersFollowTheirNodes: the budgets of mgr, mds, rgw and rbd-mirror are updated when a node leaves on
// which one of them is, or may be, and then as long as it does; that others leave changes nothing about them.
func TestBudgetsOfOthersFollowTheirNodes(t *testing.T) {
	t.Parallel()
	type attempt = activities.Attempt[activities.StaticBudgetsResult]
	knows := func(hosts ...string) attempt {
		return attempt{Begun: true, Result: activities.StaticBudgetsResult{Hosts: hosts, HostsKnown: true}}
	}
	for name, steps := range map[string][]struct {
		granted string
		due     bool
		after   time.Duration
		updated bool
		then    attempt
	}{
		"of a node without any": {
			{due: true, updated: true, then: knows("node-a")},
			{granted: "node-b"},
			{granted: ""},
			{granted: "node-c"},
		},
		"of their own": {
			{due: true, updated: true, then: knows("node-a")},
			{granted: "node-a", updated: true, then: knows("node-a")},
			{granted: "node-a"},
			{granted: "node-b", updated: true, then: knows("node-a")}, // node-a does not leave any more
			{granted: ""},
		},
		"while one is away": {
			{due: true, updated: true, then: attempt{Begun: true}},
			{granted: "node-b", updated: true, then: attempt{Begun: true}},
			{granted: "", updated: true, then: knows("node-b")},
			{granted: "node-a"},
			{granted: "node-b", updated: true, then: knows("node-b")},
		},
		"after a failure": {
			{due: true, updated: true, then: knows("node-a")},
			{granted: "node-a", updated: true, then: attempt{Begun: true, Failed: "no answer"}},
			{granted: "node-a", updated: true, then: knows("node-a")},
			{granted: "node-a"},
		},
		"whose watcher may be dead": {
			{due: true, updated: true, then: knows("node-a")},
			{granted: "node-b", after: othersLast},
			{granted: "", after: time.Second, updated: true, then: knows("node-b")},
			{granted: "node-a", after: othersLast},
		},
		"after one has moved": {
			{due: true, updated: true, then: knows("node-a")},
			{granted: "node-b"},
			{granted: "node-b", due: true, updated: true, then: knows("node-b")},
			{granted: "", updated: true, then: knows("node-b")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &mind{}
			m.observed.Settings = storage.Settings{ManagePodBudgets: true}
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			for i, step := range steps {
				now = now.Add(step.after)
				m.state.Memory.Lease = lease.State{}
				if step.granted != "" {
					m.state.Memory.Lease.Holders = []lease.Claim{{WorkflowID: "drain/" + step.granted, RunID: "1", Node: step.granted}}
				}
				m.daemonsDue = m.daemonsDue || step.due
				got := m.otherBudgets(now)
				require.Equal(t, step.updated, got != nil, "step %d", i)
				if got != nil {
					m.tookOthers(now, step.then)
				}
			}
		})
	}
}

// TestHoldsAreSetAgain: what held autoscalers back from a node, and was taken away, is set again once for each look
// that misses it.
func TestHoldsAreSetAgain(t *testing.T) {
	m := &mind{others: map[string]bool{}}
	m.observed.Settings = storage.Settings{ManagePodBudgets: true}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m.verdict.Stay, m.daemonsDue, m.othersAsOf = []string{"node-a"}, true, now
	for i, look := range []struct{ unheld, written bool }{
		{false, true}, {false, false}, {true, true}, {true, true}, {false, false},
	} {
		m.observed.Seen.View.At = now.Add(time.Duration(i) * time.Second)
		m.verdict.Unheld = look.unheld
		require.Equal(t, look.written, m.otherBudgets(now) != nil, "look %d", i)
		require.Nil(t, m.otherBudgets(now), "nothing new was seen")
	}
}

// TestOthersWait: what nobody waits for comes with the last of several steps.
func TestOthersWait(t *testing.T) {
	for name, c := range map[string]struct {
		m     mind
		waits bool
	}{
		"the next step follows at once":       {mind{putsOff: true, again: true}, true},
		"it is the last one":                  {mind{putsOff: true}, false},
		"as a history from before it goes on": {mind{again: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &plan{}
			p.Budgets, p.Others = &activities.BudgetInput{}, &activities.LeavingNodes{}
			c.m.putOff(p)
			require.Equal(t, c.waits, p.Others == nil)
			require.Equal(t, c.waits, c.m.daemonsDue)
			p = &plan{}
			p.Others = &activities.LeavingNodes{}
			c.m.putOff(p)
			require.NotNil(t, p.Others, "they are all that there is to do")
		})
	}
}
