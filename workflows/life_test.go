package workflows_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/sim"
)

// TestNothingOpensWhileOSDsHang: what Ceph says is from before. The zone opens when those that hang report again.
func TestNothingOpensWhileOSDsHang(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hang []string
		ago  time.Duration
	}{
		"one of another zone, for a while":  {hang: []string{"osd.1"}, ago: 4500 * time.Millisecond},
		"one of another zone, a moment ago": {hang: []string{"osd.1"}, ago: 100 * time.Millisecond},
		"all of the other zones, a moment ago": {
			hang: []string{"osd.1", "osd.2", "osd.4", "osd.5"},
			ago:  500 * time.Millisecond,
		},
		"all of the other zones, at that time": {hang: []string{"osd.1", "osd.2", "osd.4", "osd.5"}},
		"all OSDs, those that are to go as well": {
			hang: []string{"osd.0", "osd.1", "osd.2", "osd.3", "osd.4", "osd.5"},
			ago:  500 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for phase := range 4 { // of the reports and of the manager's ticks
				play(t, sim.Options{NodesPerZone: 2}, func(s *scene) {
					s.settle()
					time.Sleep(3 * time.Second) // what was proved at the beginning is of no use any more
					time.Sleep(time.Duration(phase) * 250 * time.Millisecond)
					s.Hang(true, c.hang...)
					time.Sleep(c.ago)
					s.PersonCordons("node-a", true)
					for end := time.Now().Add(6 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
						require.NotEqual(s, only("x"), s.Budget())
					}
					s.Hang(false, c.hang...)
					s.awaitBudget(only("x"), time.Minute)
				})
			}
		})
	}
}

// TestWhatWaitedForAQuorumIsNoSignOfLife: a node hangs with OSDs and a mon right after the question who lives. Until
// the other mons have elected, what its OSDs reported before waits; then it is news, and seconds old.
func TestWhatWaitedForAQuorumIsNoSignOfLife(t *testing.T) {
	t.Parallel()
	hung := 0
	for phase := range 10 { // of the reports and of the manager's ticks
		play(t, sim.Options{NodesPerZone: 2}, func(s *scene) {
			s.settle()
			time.Sleep(3 * time.Second)
			s.KubectlDrain("node-a") // one of its OSDs goes at once
			time.Sleep(time.Duration(phase+2) * 200 * time.Millisecond)
			if s.Budget() == only("x") {
				return // asked and answered
			}
			hung++
			s.Hang(true, "node-b")
			for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				require.NotEqual(s, only("x"), s.Budget())
			}
			s.Hang(false, "node-b")
			s.awaitBudget(only("x"), time.Minute)
		})
	}
	require.Positive(t, hung)
}

// TestWhoeverIsLeavingCountsAsDown: an OSD whose pod ends serves, and reports, until its time is over.
func TestWhoeverIsLeavingCountsAsDown(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{NodesPerZone: 2, Grace: 20 * time.Second}, func(s *scene) {
		s.settle()
		require.True(s, s.EvictAny("osd.1"))
		s.PersonCordons("node-a", true)
		for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			require.Equal(s, 6, s.Up())
			require.NotEqual(s, only("x"), s.Budget())
		}
		s.awaitBudget(only("x"), time.Minute)
		s.PersonCordons("node-a", false)
	})
}

// TestWhoHangsIsNamed, and until it reports again nobody may go who would be the second.
func TestWhoHangsIsNamed(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		time.Sleep(3 * time.Second)
		s.Hang(true, "osd.1")
		s.PersonCordons("node-a", true)
		s.awaitBudget("closed", 6*time.Second)
		require.Contains(s, s.keeperStatus().Decision.Message, "osd.1 in zone-y")
		s.Hang(false, "osd.1")
		s.PersonCordons("node-a", false)
		s.awaitBudget(atRest, 10*time.Second)
	})
}

// TestWhoHangsInsideHoldsNobodyUp: the OSDs of the domain that is to open need not live.
func TestWhoHangsInsideHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		s.Hang(true, "osd.0")
		time.Sleep(4500 * time.Millisecond)
		s.PersonCordons("node-a", true)
		s.awaitBudget(only("x"), 2500*time.Millisecond)
	})
}

// TestTheNextZoneOpensSoonAfterHealing: at once if the proof of whole data was made right then, and after one question
// otherwise.
func TestTheNextZoneOpensSoonAfterHealing(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		s.KubectlDrain("node-d") // it has no mon: nothing else happens
		s.awaitBudget(only("x"), 4*time.Second)
		require.True(s, s.Await(time.Minute, func() bool { return s.Evicted("node-d") }))
		s.KubectlDrain("node-e")
		s.PersonCordons("node-d", false)
		require.True(s, s.Await(time.Minute, func() bool { return s.keeperStatus().Clean }))
		s.awaitBudget(only("y"), 2500*time.Millisecond)
	})
}

// TestQuestionsCostNothingAtRest: nobody asks for reports while nothing is to open, and one question is asked for one
// opening.
func TestQuestionsCostNothingAtRest(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	count := func(_ context.Context, op string) sim.Failure {
		if op == "ceph osd last-stat-seq" {
			asked.Add(1)
		}
		return sim.Failure{}
	}
	play(t, sim.Options{Fail: count}, func(s *scene) {
		s.settle()
		before := asked.Load()
		time.Sleep(20 * time.Minute)
		require.Equal(s, before, asked.Load(), "reports are looked at, and there is no question")
		s.PersonCordons("node-a", true)
		s.awaitBudget(only("x"), 4*time.Second)
		require.Greater(s, asked.Load(), before)
		time.Sleep(time.Second)
		before = asked.Load()
		time.Sleep(40 * time.Second)
		require.Equal(s, only("x"), s.Budget())
		require.Equal(s, before, asked.Load(), "what is open stays open without another question")
	})
}

// TestAnOpenZoneWithoutPodsStaysOpen: nobody makes a bare pod on a cordoned node, so a zone of one node is without pods
// while the node is drained. A budget that left nothing out meanwhile would be opened when they are back, and then
// nobody has asked who lives.
func TestAnOpenZoneWithoutPodsStaysOpen(t *testing.T) {
	t.Parallel()
	opts := osdsBy("Zone")
	opts.OSDsPerNode, opts.NodesPerZone = 1, 1
	play(t, opts, func(s *scene) {
		s.settleOSDs()
		run := s.drain(drainOf("node-c"))
		s.awaitPhase("node-c", awaitingNode, time.Minute)
		require.Equal(s, storage.PodNone, s.PodState("osd.2"))
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			require.Equal(s, only("z"), s.Budget())
		}
		s.Hang(true, "osd.0")
		s.tellDrain("node-c", jobs.SignalDone)
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			require.Equal(s, only("z"), s.Budget())
		}
		s.Hang(false, "osd.0")
		e := s.awaitEnd("node-c", run, 5*time.Minute)
		require.NoError(s, e.err)
	})
}
