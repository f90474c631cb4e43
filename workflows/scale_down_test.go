package workflows_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// threefold has a volume on a, b and c, and one on d, e and f.
func threefold() *toyStore {
	return newToy(map[string][]string{"v1": {"a", "b", "c"}, "v2": {"d", "e", "f"}})
}

// TestScaleDownsTakeTurns: three nodes that share a volume are tainted in the same second. Two are removed, one after
// the other, and the one with the last copy stays until the autoscaler gives it up.
func TestScaleDownsTakeTurns(t *testing.T) {
	t.Parallel()
	toy := threefold()
	playToy(t, toy, func(s *scene) {
		runs := map[string]string{}
		for _, node := range []string{"a", "b", "c"} {
			toy.announces(node, taint(time.Now()))
			runs[node] = s.scaleDown(node)
			toy.autoscales(node)
		}
		running := func() (out []string) {
			for node := range runs {
				if s.runs(jobs.ScaleDownNode.ID(node)) {
					out = append(out, node)
				}
			}
			return out
		}
		require.True(s, s.Await(10*time.Minute, func() bool { return len(running()) == 1 }), running())
		last := running()[0]
		for node, run := range runs {
			if node != last {
				require.Equal(s, workflows.OutcomeGone, s.awaitRemoval(node, run, time.Second).removal.Outcome)
			}
		}
		require.True(s, s.Await(time.Minute, func() bool {
			return strings.Contains(s.scaleDownStatus(last).WaitsFor, "no other node has a copy of v1")
		}), s.scaleDownStatus(last))
		toy.announces(last, leaving.Signs{})
		e := s.awaitRemoval(last, runs[last], time.Minute)
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeStayed, e.removal.Outcome)
		require.Empty(s, s.keeperStatus().Lease.Queue)
	})
	assert.Equal(t, 1, toy.away, "nodes that were away at once")
}

// TestScaleDownsSideBySide: two nodes that share nothing are open at the same time.
func TestScaleDownsSideBySide(t *testing.T) {
	t.Parallel()
	toy := threefold()
	playToy(t, toy, func(s *scene) {
		runs := map[string]string{}
		for _, node := range []string{"a", "d"} {
			toy.announces(node, leaving.Signs{Disrupted: true})
			runs[node] = s.scaleDown(node)
		}
		for node := range runs {
			s.awaitScaleDown(node, workflows.PhaseRemoval)
		}
		require.Len(s, s.keeperStatus().Lease.Holders, 2)
		for node := range runs {
			toy.autoscales(node)
		}
		for node, run := range runs {
			e := s.awaitRemoval(node, run, 5*time.Minute)
			require.NoError(s, e.err)
			require.Equal(s, workflows.OutcomeGone, e.removal.Outcome)
		}
	})
	assert.Equal(t, 2, toy.away, "nodes that were away at once")
}

// twoWait has the node a open, and b wait for it.
func (s *scene) twoWait(toy *toyStore, signs leaving.Signs) (a, b string) {
	s.Helper()
	toy.announces("a", signs)
	a = s.scaleDown("a")
	s.awaitScaleDown("a", workflows.PhaseRemoval)
	toy.announces("b", signs)
	b = s.scaleDown("b")
	require.True(s, s.Await(time.Minute, func() bool {
		return strings.Contains(s.scaleDownStatus("b").WaitsFor, "scale-down/a holds node a")
	}), s.scaleDownStatus("b"))
	return a, b
}

// TestScaleDownEnds: whatever becomes of a node, in the queue and while it is open, its job says so and gives back what
// it has.
func TestScaleDownEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happens func(toy *toyStore, node string)
		want    string
	}{
		"rolled back": {
			func(toy *toyStore, node string) { toy.announces(node, leaving.Signs{}) }, workflows.OutcomeStayed,
		},
		"gone": {func(toy *toyStore, node string) { toy.remove(node) }, workflows.OutcomeGone},
		"another node": {
			func(toy *toyStore, node string) { toy.registersAgain(node, leaving.Signs{}) }, workflows.OutcomeGone,
		},
		"its taint expires": {func(toy *toyStore, node string) {
			toy.announces(node, taint(time.Now().Add(30*time.Second-time.Hour)))
		}, workflows.OutcomeExpired},
	} {
		for _, node := range []string{"a", "b"} {
			t.Run(name+"/"+map[string]string{"a": "open", "b": "queued"}[node], func(t *testing.T) {
				t.Parallel()
				toy := threefold()
				playToy(t, toy, func(s *scene) {
					runs := map[string]string{}
					runs["a"], runs["b"] = s.twoWait(toy, leaving.Signs{Deleting: true})
					began := time.Now()
					c.happens(toy, node)
					e := s.awaitRemoval(node, runs[node], time.Minute)
					require.NoError(s, e.err)
					require.Equal(s, c.want, e.removal.Outcome)
					require.Less(s, time.Since(began), 40*time.Second)
					_, asks := s.scaleDownHolds(node)
					require.False(s, asks, "its claim is gone")
					if node == "a" { // its peer has its turn at once
						s.awaitScaleDown("b", workflows.PhaseRemoval)
						s.tellScaleDown("b", jobs.SignalAbort)
					} else {
						s.tellScaleDown("a", jobs.SignalAbort)
					}
				})
			})
		}
	}
}

// TestScaleDownOfNothing: a node that does not leave, and one that does not exist, need no lease.
func TestScaleDownOfNothing(t *testing.T) {
	t.Parallel()
	playToy(t, threefold(), func(s *scene) {
		for node, want := range map[string]string{"a": workflows.OutcomeStayed, "x": workflows.OutcomeGone} {
			e := s.awaitRemoval(node, s.scaleDown(node), time.Minute)
			require.NoError(s, e.err)
			require.Equal(s, want, e.removal.Outcome)
		}
	})
}

// TestScaleDownHeldByPeople: `pause` closes the node, and has the job leave the queue; `resume` has it ask again;
// `abort` gives back what it has.
func TestScaleDownHeldByPeople(t *testing.T) {
	t.Parallel()
	toy := threefold()
	playToy(t, toy, func(s *scene) {
		a, b := s.twoWait(toy, leaving.Signs{Cordoned: true, Disrupted: true})
		s.tellScaleDown("b", jobs.SignalPause)
		require.True(s, s.Await(time.Minute, func() bool { _, asks := s.scaleDownHolds("b"); return !asks }))
		s.tellScaleDown("a", jobs.SignalPause)
		require.True(s, s.Await(time.Minute, func() bool { _, asks := s.scaleDownHolds("a"); return !asks }))
		s.awaitMode(budget.ModeDefault)
		require.Contains(s, s.scaleDownStatus("a").WaitsFor, "resume")
		s.tellScaleDown("b", jobs.SignalResume)
		s.awaitScaleDown("b", workflows.PhaseRemoval)
		s.tellScaleDown("b", jobs.SignalAbort)
		require.Equal(s, workflows.OutcomeAborted, s.awaitRemoval("b", b, time.Minute).removal.Outcome)
		s.awaitMode(budget.ModeDefault)
		toy.announces("a", leaving.Signs{})
		require.Equal(s, workflows.OutcomeStayed, s.awaitRemoval("a", a, time.Minute).removal.Outcome, "though paused")
	})
}

// TestScaleDownGivesItsTurn: a node that stays as it is while it is open lets those go that wait for it, and has its
// turn again. One that has begun to lose its daemons keeps it.
func TestScaleDownGivesItsTurn(t *testing.T) {
	t.Parallel()
	toy := threefold()
	playToy(t, toy, func(s *scene) {
		a, b := s.twoWait(toy, leaving.Signs{Disrupted: true})
		require.Equal(s, time.Minute, s.keeperStatus().Lease.Holders[0].Turn)
		s.awaitScaleDown("b", workflows.PhaseRemoval)
		require.True(s, s.Await(time.Minute, func() bool {
			return strings.Contains(s.scaleDownStatus("a").WaitsFor, "scale-down/b holds node b")
		}), s.scaleDownStatus("a"))
		began := time.Now()
		toy.happens(func() { toy.goes("b") })
		time.Sleep(5 * time.Minute)
		require.Equal(s, workflows.PhaseRemoval, s.scaleDownStatus("b").Phase, "it has begun")
		toy.remove("b")
		require.Equal(s, workflows.OutcomeGone, s.awaitRemoval("b", b, time.Minute).removal.Outcome)
		s.awaitScaleDown("a", workflows.PhaseRemoval)
		toy.autoscales("a")
		e := s.awaitRemoval("a", a, time.Minute)
		require.Equal(s, workflows.OutcomeGone, e.removal.Outcome)
		require.Equal(s, 1, e.removal.Turns)
		require.Greater(s, e.removal.Waited, 5*time.Minute)
		require.Less(s, e.removal.Waited, time.Since(began)+2*time.Minute)
	})
}

// TestScaleDownKeepsItsTurn: nobody waits, so the node stays open for as long as it leaves.
func TestScaleDownKeepsItsTurn(t *testing.T) {
	t.Parallel()
	toy := threefold()
	playToy(t, toy, func(s *scene) {
		for _, node := range []string{"a", "d"} { // they share nothing
			toy.announces(node, leaving.Signs{Disrupted: true})
			s.scaleDown(node)
			s.awaitScaleDown(node, workflows.PhaseRemoval)
		}
		tokens := []int64{s.scaleDownStatus("a").Token, s.scaleDownStatus("d").Token}
		time.Sleep(time.Hour)
		require.Equal(s, tokens, []int64{s.scaleDownStatus("a").Token, s.scaleDownStatus("d").Token})
		s.tellScaleDown("a", jobs.SignalAbort)
		s.tellScaleDown("d", jobs.SignalAbort)
	})
}

// TestScaleDownAnnouncedAgain: the autoscaler begins again while the node's copies are not whole yet. The node has its
// turn again at once, in the same job.
func TestScaleDownAnnouncedAgain(t *testing.T) {
	t.Parallel()
	toy := threefold()
	playToy(t, toy, func(s *scene) {
		toy.announces("a", leaving.Signs{Disrupted: true})
		a := s.scaleDown("a")
		s.awaitScaleDown("a", workflows.PhaseRemoval)
		toy.happens(func() { toy.goes("a") })
		toy.announces("a", leaving.Signs{}) // and its pod does not come back
		s.awaitScaleDown("a", workflows.PhaseHeal)
		time.Sleep(10 * time.Second)
		require.Contains(s, s.scaleDownStatus("a").WaitsFor, "the copies on a are not whole")
		toy.announces("a", leaving.Signs{Disrupted: true})
		s.awaitScaleDown("a", workflows.PhaseRemoval)
		toy.returns("a")
		e := s.awaitRemoval("a", a, time.Minute)
		require.Equal(s, workflows.OutcomeStayed, e.removal.Outcome)
	})
}

// TestScaleDownReplaced: the next node of the same name leaves as well.
func TestScaleDownReplaced(t *testing.T) {
	t.Parallel()
	toy := threefold()
	playToy(t, toy, func(s *scene) {
		toy.announces("a", leaving.Signs{Disrupted: true})
		a := s.scaleDown("a")
		s.awaitScaleDown("a", workflows.PhaseRemoval)
		token := s.scaleDownStatus("a").Token
		toy.registersAgain("a", leaving.Signs{Deleting: true})
		require.True(s, s.Await(time.Minute, func() bool {
			now := s.scaleDownStatus("a")
			return now.Phase == workflows.PhaseRemoval && now.Token > token && now.Target.UID == "uid-a-1"
		}), s.scaleDownStatus("a"))
		toy.remove("a")
		require.Equal(s, workflows.OutcomeGone, s.awaitRemoval("a", a, time.Minute).removal.Outcome)
	})
}

// TestScaleDownWarns: Karpenter's deadline, which passes over every budget, is told an hour and ten minutes before, in
// the queue as well as while the node is open.
func TestScaleDownWarns(t *testing.T) {
	t.Parallel()
	toy := threefold()
	playToy(t, toy, func(s *scene) {
		until := time.Now().Add(3 * time.Hour)
		s.twoWait(toy, leaving.Signs{Disrupted: true, Until: until.Format(time.RFC3339)})
		toy.happens(func() { toy.goes("a") }) // so that it keeps its turn
		for _, node := range []string{"a", "b"} {
			require.Empty(s, s.scaleDownStatus(node).Warning)
		}
		time.Sleep(time.Until(until.Add(-time.Hour + 2*time.Second)))
		early := s.scaleDownStatus("b").Warning
		require.Contains(s, early, "whatever its budgets say")
		require.Equal(s, early, s.scaleDownStatus("a").Warning)
		time.Sleep(50 * time.Minute)
		require.NotEqual(s, early, s.scaleDownStatus("b").Warning)
		require.Contains(s, s.scaleDownStatus("a").Warning, "less than ten minutes")
		for _, node := range []string{"a", "b"} {
			s.tellScaleDown(node, jobs.SignalAbort)
		}
	})
}

// TestScaleDownContinuesAsNewAtEveryWait: a long wait goes on in a new run: with the same claim, since the same time.
func TestScaleDownContinuesAsNewAtEveryWait(t *testing.T) {
	t.Parallel()
	toy := threefold()
	playToy(t, toy, func(s *scene) {
		again := func(node string) {
			s.Helper()
			for range 2 {
				s.mustContinue(jobs.ScaleDownNode.ID(node), func() workflows.JobStatus {
					return s.scaleDownStatus(node).JobStatus
				})
				time.Sleep(time.Minute)
			}
		}
		_, b := s.twoWait(toy, taint(time.Now()))
		toy.happens(func() { toy.goes("a") }) // so that it keeps its turn
		queue, holders := s.keeperStatus().Lease.Queue, s.keeperStatus().Lease.Holders
		again("b")
		again("a")
		require.Equal(s, queue, s.keeperStatus().Lease.Queue, "the claim is kept, and its place")
		require.Equal(s, holders, s.keeperStatus().Lease.Holders, "the lease is kept, and its token")
		s.tellScaleDown("b", jobs.SignalPause)
		time.Sleep(10 * time.Second)
		again("b")
		s.tellScaleDown("b", jobs.SignalResume)
		s.awaitScaleDown("b", workflows.PhaseLease)
		toy.announces("a", leaving.Signs{})
		s.awaitScaleDown("a", workflows.PhaseHeal)
		time.Sleep(10 * time.Second)
		again("a")
		toy.returns("a")
		s.awaitScaleDown("b", workflows.PhaseRemoval)
		toy.autoscales("b")
		e := s.awaitRemoval("b", b, 5*time.Minute)
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeGone, e.removal.Outcome)
	})
}

// TestLeavingAsAScaleDownEnds: whoever reports that the node leaves again while its job ends started no other one.
func TestLeavingAsAScaleDownEnds(t *testing.T) {
	t.Parallel()
	for step := range 12 {
		toy := threefold()
		playToy(t, toy, func(s *scene) {
			toy.announces("a", leaving.Signs{Disrupted: true})
			a := s.scaleDown("a")
			s.awaitScaleDown("a", workflows.PhaseRemoval)
			toy.announces("a", leaving.Signs{})
			time.Sleep(time.Duration(step) * time.Millisecond)
			toy.announces("a", leaving.Signs{Disrupted: true})
			s.signal(jobs.ScaleDownNode.ID("a"), workflows.SignalNodeLeaving, "tainted")
			time.Sleep(10 * time.Millisecond)
			if !s.runs(jobs.ScaleDownNode.ID("a")) {
				a = s.scaleDown("a")
			}
			s.awaitScaleDown("a", workflows.PhaseRemoval)
			toy.remove("a")
			require.Equal(s, workflows.OutcomeGone, s.awaitRemoval("a", a, time.Minute).removal.Outcome)
		})
	}
}

// TestScaleDownOfTwoClusters: on a node of two storage clusters nothing opens before both leases are held, and both go
// back when the node stays.
func TestScaleDownOfTwoClusters(t *testing.T) {
	t.Parallel()
	opts, blocked := blockable(sim.Options{})
	play(t, opts, func(s *scene) {
		x := s.settleBoth()
		blocked.set("cordon", true) // so that who has a lease touches nothing
		s.busy(x.ceph, "node-b")
		s.onNode(func(w *sim.World) { w.Taint("node-a", leaving.RemovalTaint) })
		run := s.scaleDown("node-a")
		id := jobs.ScaleDownNode.ID("node-a")
		reserved := func() bool {
			c, holds, _ := s.keeperOf(x.a).Lease.Find(id, run)
			return holds && c.Reserved()
		}
		require.True(s, s.Await(time.Minute, reserved), s.scaleDownStatus("node-a"))
		require.Len(s, s.scaleDownStatus("node-a").Leases, 2)
		s.tellDrain("node-b", jobs.SignalAbort)
		s.awaitScaleDown("node-a", workflows.PhaseRemoval)
		for _, at := range []*sight{x.a, x.ceph} {
			c, holds, _ := s.keeperOf(at).Lease.Find(id, run)
			require.True(s, holds && !c.Reserved(), at.Key())
			require.Equal(s, lease.PriorityScaleDown, c.Priority)
			require.Empty(s, c.FlagHosts, "nobody comes back to what noout would preserve")
		}
		s.onNode(func(w *sim.World) { w.Taint("node-a", "") })
		e := s.awaitRemoval("node-a", run, 2*time.Minute)
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeStayed, e.removal.Outcome)
		s.awaitNothingLeft(time.Minute)
	}, secondCluster)
}
