package workflows_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/worker"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// playToy plays a script over a store of another kind than Ceph. The keeper, the jobs and the activities are the real
// ones. The watcher, which knows only Ceph, is away.
func playToy(t *testing.T, toy *toyStore, script func(*scene)) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	playOn(t, func(a *worker.Adapters) {
		toy.scene = ctx
		toy.changed = make(chan struct{}) // of this bubble
		a.Policies, a.Budgets, a.Nodes, a.Clusters = toy, toy, toy, toy
	}, sim.Options{}, func(s *scene) {
		s.blindfold(true)
		defer end() // of those who remove nodes
		s.startKeeper()
		script(s)
		s.Await(2*time.Minute, func() bool { return len(toy.leftBehind()) == 0 })
	})
	assert.Empty(t, toy.bad)
	assert.Equal(t, []string(nil), toy.leftBehind())
}

// leftBehind is what lockkeeper has changed and not changed back.
func (t *toyStore) leftBehind() (out []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, n := range t.nodes {
		if n.cordoned {
			out = append(out, name+" is cordoned")
		}
	}
	if t.specs.LetsGo() {
		out = append(out, "a node is open")
	}
	return out
}

// ring has a volume on each two nodes that follow each other: a shares none with c, and b none with d.
func ring() *toyStore {
	return newToy(map[string][]string{"v1": {"a", "b"}, "v2": {"b", "c"}, "v3": {"c", "d"}, "v4": {"d", "a"}})
}

func (s *scene) drainToy(node string) (run string) {
	return s.drain(workflows.DrainNodeInput{Node: node, UncordonAfterReboot: true})
}

// waitsFor is what the lease's queue says that a drain waits for.
func (s *scene) waitsFor(node string) string {
	c, _, _ := s.keeperStatus().Lease.Find(jobs.DrainNode.ID(node), s.last[jobs.DrainNode.ID(node)])
	return c.WaitsFor
}

// TestToyDrains: of two nodes that share a volume one waits for the other, and hears why. A third one, which shares
// none with the first, goes at the same time.
func TestToyDrains(t *testing.T) {
	toy := ring()
	playToy(t, toy, func(s *scene) {
		a := s.drainToy("a")
		s.awaitPhase("a", workflows.PhaseReturn, time.Minute)
		b, c := s.drainToy("b"), s.drainToy("c")
		s.awaitPhase("c", workflows.PhaseReturn, time.Minute)
		s.awaitPhase("b", workflows.PhaseLease, time.Minute)
		require.True(s, s.Await(time.Minute, func() bool {
			return strings.Contains(s.drainStatus("b").WaitsFor, "the lease: drain/a holds node a")
		}), s.drainStatus("b").WaitsFor)
		for node, run := range map[string]string{"a": a, "b": b, "c": c} {
			e := s.awaitEnd(node, run, time.Hour)
			require.NoError(s, e.err)
			require.Equal(s, workflows.OutcomeDone, e.result.Outcome)
			require.Equal(s, 1, e.result.Evicted)
		}
		status := s.keeperStatus()
		require.Equal(s, workflows.ToyKind, status.Kind)
		s.awaitMode(budget.ModeDefault)
		require.Empty(s, s.keeperStatus().Lease.Holders)
	})
	assert.Equal(t, 2, toy.away, "nodes that were away at once")
}

// TestToyKeeperGoesOn: a keeper that continues as new, and one that follows a keeper that was terminated, know who
// holds the lease of a store of this kind, and who waits.
func TestToyKeeperGoesOn(t *testing.T) {
	for name, interrupt := range map[string]func(*scene){
		"continues as new": (*scene).continueKeeper,
		"is terminated":    func(s *scene) { s.killKeeper(); s.startKeeper() },
	} {
		t.Run(name, func(t *testing.T) {
			toy := ring()
			playToy(t, toy, func(s *scene) {
				a := s.drainToy("a")
				s.awaitPhase("a", workflows.PhaseReturn, time.Minute)
				b := s.drainToy("b")
				require.True(s, s.Await(time.Minute, func() bool { return s.waitsFor("b") != "" }))
				before := s.keeperStatus().Lease.Holders
				interrupt(s)
				require.True(s, s.Await(time.Minute, func() bool { return s.waitsFor("b") != "" }))
				holders := s.keeperStatus().Lease.Holders
				require.Len(s, holders, 1)
				require.Equal(s, before[0].Token, holders[0].Token)
				for node, run := range map[string]string{"a": a, "b": b} {
					require.Equal(s, workflows.OutcomeDone, s.awaitEnd(node, run, time.Hour).result.Outcome)
				}
			})
			assert.Equal(t, 1, toy.away, "nodes that were away at once")
		})
	}
}

// TestToySilent: a store that does not answer closes, and what waits goes on when it answers again. That a silent store
// does not say which kind it is changes nothing.
func TestToySilent(t *testing.T) {
	toy := ring()
	playToy(t, toy, func(s *scene) {
		s.awaitMode(budget.ModeDefault)
		toy.happens(func() { toy.silent = true })
		s.awaitMode(budget.ModeClosed)
		require.Equal(s, workflows.ToyKind, s.keeperStatus().Kind)
		require.Nil(s, s.keeperStatus().Decision.Mons)
		toy.happens(func() { toy.silent = false })
		require.Equal(s, workflows.OutcomeDone, s.awaitEnd("d", s.drainToy("d"), time.Hour).result.Outcome)
		s.awaitMode(budget.ModeDefault)
	})
}

// TestToyOfAnotherVersion: storage of a kind that the worker does not know stays closed, and people read why.
func TestToyOfAnotherVersion(t *testing.T) {
	toy := ring()
	playToy(t, toy, func(s *scene) {
		s.awaitMode(budget.ModeDefault)
		toy.happens(func() { toy.kind = "Later" })
		s.awaitMode(budget.ModeClosed)
		require.Contains(s, s.keeperStatus().Decision.Message, `knows no storage of kind "Later"`)
		toy.happens(func() { toy.kind = workflows.ToyKind })
		s.awaitMode(budget.ModeDefault)
	})
}

// TestDetachesByHand: what somebody attached by hand to a node that is drained or removed is detached from it where the
// policy says so, and nowhere else. Where it may not be the job says so, and goes on.
func TestDetachesByHand(t *testing.T) {
	for name, c := range map[string]struct {
		policy bool
		mayNot string
		want   workflows.AttachedByHand
	}{
		"as the policy says": {true, "", workflows.AttachedByHand{Detached: []string{"vol-1", "vol-2"}}},
		"not otherwise":      {false, "", workflows.AttachedByHand{}},
		"without the right": {true, "forbidden", workflows.AttachedByHand{
			NotDetached: "what was attached to NODE by hand stays attached: forbidden",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			toy := ring()
			toy.detaches, toy.mayNot = c.policy, c.mayNot
			for _, node := range []string{"a", "b", "d"} {
				toy.nodes[node].byHand = []string{"vol-2", "vol-1"}
			}
			want := func(node string) workflows.AttachedByHand {
				w := c.want
				w.NotDetached = strings.Replace(w.NotDetached, "NODE", node, 1)
				return w
			}
			playToy(t, toy, func(s *scene) {
				drained := s.awaitEnd("a", s.drainToy("a"), time.Hour)
				require.NoError(s, drained.err)
				require.Equal(s, want("a"), drained.result.AttachedByHand)
				toy.announces("d", taint(time.Now()))
				run := s.scaleDown("d")
				toy.autoscales("d")
				removed := s.awaitRemoval("d", run, time.Hour)
				require.NoError(s, removed.err)
				require.Equal(s, want("d"), removed.removal.AttachedByHand)
			})
			require.Len(t, toy.nodes["b"].byHand, 2, "it is not leaving")
			require.Equal(t, len(c.want.Detached) == 0, len(toy.nodes["a"].byHand) == 2)
		})
	}
}

func (s *scene) awaitMode(mode budget.Mode) {
	s.Helper()
	require.True(s, s.Await(time.Minute, func() bool { return s.keeperStatus().Decision.Mode == mode }),
		s.keeperStatus().Decision)
}
