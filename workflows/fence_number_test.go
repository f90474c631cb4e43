package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file is nodes that are cut off from the control plane and serve, and the MachineDisruptionBudget, whose number
// may let such a node go without anybody having been asked.

const (
	oneMayGo  = "1 may be unavailable"
	noneMayGo = "0 may be unavailable"
)

// TestFenceOfANodeThatIsCutOff: its OSD serves, so that its failure domain is opened for it.
func TestFenceOfANodeThatIsCutOff(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fenced()
		s.machines.CutOff("node-d")
		e := s.awaitFence("node-d", s.fence("node-d"))
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeDone, e.fence.Outcome)
		require.Equal(s, "DomainOpen", e.fence.Released)
		require.Equal(s, 1, s.machines.Fences("node-d"))
		s.heldAgain()
	})
}

// TestFenceOfACutOffNodeWaitsForOthers: not while the OSD of another failure domain is missed.
func TestFenceOfACutOffNodeWaitsForOthers(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fenced()
		s.missOSD()
		s.machines.CutOff("node-d")
		run := s.fence("node-d")
		s.notFencedWhileMissed("node-d")
		e := s.awaitFence("node-d", run)
		require.NoError(s, e.err)
		require.Equal(s, "DomainOpen", e.fence.Released)
		s.Start("osd.1")
		s.heldAgain()
	})
}

// TestNetworkOfACutOffNodeReturns: an eviction that its kubelet did not hear of is carried out then, and nothing is
// fenced.
func TestNetworkOfACutOffNodeReturns(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fenced()
		s.machines.CutOff("node-d")
		require.True(s, s.EvictAny("osd.3"))
		time.Sleep(3 * time.Second)
		require.Equal(s, "6/6", s.Status().Storage.Up, "its process goes on")
		s.machines.NetworkReturns("node-d")
		require.True(s, s.Await(time.Minute, func() bool { return s.Status().Storage.Up == "5/6" }))
		require.True(s, s.Await(time.Minute, func() bool { return len(s.Whole()) == 0 }), s.Whole())
		require.Zero(s, s.machines.Fences("node-d"))
		s.heldAgain()
	})
}

// missOSD ends an OSD of zone-y, and waits until the data misses it by a map that counts.
func (s *scene) missOSD() {
	s.Helper()
	s.Kill("osd.1", 0)
	require.True(s, s.Await(time.Minute, func() bool { return s.Status().Storage.Up == "5/6" }))
	time.Sleep(3 * time.Second)
}

func (s *scene) notFencedWhileMissed(node string) {
	s.Helper()
	for range 15 {
		time.Sleep(time.Second)
		require.False(s, s.Clean())
		require.Zero(s, s.machines.Fences(node))
	}
}

func (s *scene) awaitNumber(says string, within time.Duration) {
	s.Helper()
	require.True(s, s.Await(within, func() bool { return s.machines.BudgetSays() == says }), s.machines.BudgetSays())
}

// fencedByNumber has a MachineDisruptionBudget, and waits until it lets one go.
func (s *scene) fencedByNumber(firstWaits bool) {
	s.Helper()
	s.machines.UseBudget(firstWaits)
	s.fenced()
	s.awaitNumber(oneMayGo, time.Minute)
}

// TestNumberLetsOneGo: while the data is whole, by the arithmetic that lets one go while as many Machines are healthy
// as have to be; nobody is asked. It lets nobody go until the data is whole again.
func TestNumberLetsOneGo(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fencedByNumber(false)
		s.machines.CutOff("node-d")
		require.True(s, s.Await(time.Minute, func() bool { return s.machines.ByNumber() == 1 }))
		s.awaitNumber(noneMayGo, 2*time.Second)
		s.awaitNumber(oneMayGo, 2*time.Minute)
		require.Empty(s, s.Whole())
		s.heldAgain()
	})
}

// TestNumberWhileDataIsMissed: it lets nobody go then, though all Machines but one are healthy.
func TestNumberWhileDataIsMissed(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fencedByNumber(false)
		s.missOSD()
		s.machines.CutOff("node-d")
		s.notFencedWhileMissed("node-d")
		require.Equal(s, noneMayGo, s.machines.BudgetSays())
		s.Start("osd.1")
		require.True(s, s.Await(5*time.Minute, func() bool { return s.machines.Fences("node-d") == 1 }))
		s.awaitNumber(oneMayGo, 2*time.Minute)
		s.heldAgain()
	})
}

// TestNumberIsClosedByAnAlarm: at once, also beside a lost node, where the budgets of pods are closed and the number is
// not, and although the monitors do not answer whoever looks.
func TestNumberIsClosedByAnAlarm(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fencedByNumber(true)
		s.machines.CutOff("node-d")
		s.awaitNumber(noneMayGo, 2*time.Second)
		s.awaitNumber(oneMayGo, time.Minute)
		require.Equal(s, budget.ModeClosed, s.keeperStatus().Decision.Mode)
		time.Sleep(3 * time.Second)
		s.LoseQuorum(true)
		s.machines.LosePower("node-b")
		s.awaitNumber(noneMayGo, 500*time.Millisecond)
		s.LoseQuorum(false)
		s.machines.NetworkReturns("node-d")
		e := s.awaitFence("node-b", s.fence("node-b"))
		require.NoError(s, e.err)
		s.heldAgain()
	})
}

// TestNumberByWhichTheFirstWaits: by the other arithmetic a node goes when it is released only.
func TestNumberByWhichTheFirstWaits(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fencedByNumber(true)
		s.machines.CutOff("node-d")
		time.Sleep(20 * time.Second)
		require.Zero(s, s.machines.Fences("node-d"))
		e := s.awaitFence("node-d", s.fence("node-d"))
		require.NoError(s, e.err)
		require.Equal(s, "DomainOpen", e.fence.Released)
		require.Zero(s, s.machines.ByNumber())
		s.heldAgain()
		s.awaitNumber(oneMayGo, time.Minute)
	})
}

// TestNumberOfAPerson: what somebody else wrote, or took away, is made good within the minute after which it is looked
// at in any case.
func TestNumberOfAPerson(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.fencedByNumber(false)
		six := 6
		for _, most := range []*int{&six, nil} {
			s.machines.PersonWritesBudget(most)
			s.awaitNumber(oneMayGo, 62*time.Second)
		}
		s.DeletePolicy()
		s.awaitNumber("none", time.Minute)
		require.Empty(s, s.machines.Held())
	})
}
