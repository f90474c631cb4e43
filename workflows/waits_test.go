package workflows_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// mustContinue has a job continue as new out of the wait that it is in, and makes sure that it is in the same one
// afterwards.
func (s *scene) mustContinue(id string, status func() workflows.JobStatus) {
	s.Helper()
	s.mu.Lock()
	before := s.continues[id]
	s.mu.Unlock()
	was := status()
	require.NotEmpty(s, was.WaitsFor, "it waits")
	s.continueJob(id)
	if !s.until(20*time.Second, func() bool { return s.continues[id] > before }) {
		s.Errorf("%s does not continue as new: %+v", id, status())
		return
	}
	time.Sleep(5 * time.Second)
	is := status()
	require.Equal(s, was.Phase, is.Phase)
	require.Equal(s, was.Since, is.Since, "it waits since then: %s; %s", was.WaitsFor, is.WaitsFor)
	require.Equal(s, was.Started, is.Started)
	require.Equal(s, was.Paused, is.Paused)
}

func (s *scene) drainMustContinue(node string) {
	s.Helper()
	s.mustContinue(jobs.DrainNode.ID(node), func() workflows.JobStatus { return s.drainStatus(node).JobStatus })
}

// blockable is a world in which requests of some kinds fail for as long as a test wants.
func blockable(opts sim.Options) (sim.Options, *blocked) {
	b := &blocked{}
	opts.Fail = func(_ context.Context, op string) sim.Failure {
		if _, is := b.ops.Load(op); is {
			return sim.Failure{Err: errors.New("on purpose")}
		}
		return sim.Failure{}
	}
	return opts, b
}

type blocked struct{ ops sync.Map }

func (b *blocked) set(op string, on bool) {
	if on {
		b.ops.Store(op, true)
	} else {
		b.ops.Delete(op)
	}
}

// TestDrainContinuesAsNewAtEveryWait: a drain that waits for days leaves each of its waits for a new history, twice,
// and has forgotten nothing.
func TestDrainContinuesAsNewAtEveryWait(t *testing.T) {
	t.Parallel()
	opts, blocked := blockable(sim.Options{})
	play(t, opts, func(s *scene) {
		again := func() {
			s.Helper()
			s.drainMustContinue("node-b")
			time.Sleep(time.Minute)
			s.drainMustContinue("node-b")
		}
		s.settle()
		s.drain(drainOf("node-a"))
		s.awaitPhase("node-a", awaitingNode, 30*time.Second)

		run := s.drain(drainOf("node-b"))
		s.awaitPhase("node-b", acquiringLease, 30*time.Second)
		time.Sleep(10 * time.Second)
		claim := s.keeperStatus().Lease.Queue
		again()
		require.Equal(s, claim, s.keeperStatus().Lease.Queue, "the claim is kept, and its place")

		blocked.set("evict", true)
		s.tellDrain("node-a", jobs.SignalDone)
		s.awaitPhase("node-b", evicting, 2*time.Minute)
		time.Sleep(10 * time.Second)
		// Whoever asked twice is told twice, and nobody reads that here.
		held, _, _ := s.keeperStatus().Lease.Find(jobs.DrainNode.ID("node-b"), run)
		s.signal(jobs.DrainNode.ID("node-b"), workflows.SignalLease,
			workflows.LeaseNotice{State: workflows.LeaseGranted, RunID: run, Ask: held.Ask, Token: held.Token})
		again()
		s.tellDrain("node-b", jobs.SignalPause)
		time.Sleep(time.Second)
		again()
		s.tellDrain("node-b", jobs.SignalResume)
		time.Sleep(time.Second)
		blocked.set("evict", false)

		s.awaitPhase("node-b", awaitingNode, time.Minute)
		granted := s.keeperStatus().Lease.Holders
		again()
		require.Equal(s, granted, s.keeperStatus().Lease.Holders, "the lease is kept, and its token")
		require.Equal(s, granted[0].Token, s.drainStatus("node-b").Token)

		s.StopManager(true)
		s.tellDrain("node-b", jobs.SignalDone)
		s.awaitPhase("node-b", healing, time.Minute)
		time.Sleep(10 * time.Second)
		again()
		s.StopManager(false)
		e := s.awaitEnd("node-b", run, 5*time.Minute)
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeDone, e.result.Outcome)
		require.False(s, s.Cordoned("node-b"), "the cordon was ours")
		require.Greater(s, e.result.Waited, time.Minute)
		s.awaitNothingLeft(time.Minute)
	})
}

// TestSignalsAtContinueAsNew: what is said at the very moment is not lost.
func TestSignalsAtContinueAsNew(t *testing.T) {
	t.Parallel()
	id := jobs.DrainNode.ID("node-a")
	for signal, want := range map[string]string{
		jobs.SignalAbort: workflows.OutcomeAborted,
		jobs.SignalDone:  workflows.OutcomeDone,
	} {
		t.Run(signal, func(t *testing.T) {
			play(t, sim.Options{}, func(s *scene) {
				s.settle()
				run := s.drain(drainOf("node-a"))
				s.awaitPhase("node-a", awaitingNode, 30*time.Second)
				s.tellDrain("node-a", jobs.SignalPause)
				s.continueJob(id)
				s.tellDrain("node-a", signal)
				s.continueJob(id)
				s.tellDrain("node-a", jobs.SignalResume)
				e := s.awaitEnd("node-a", run, 2*time.Minute)
				require.NoError(s, e.err)
				require.Equal(s, want, e.result.Outcome)
				require.False(s, s.Cordoned("node-a"))
				s.awaitNothingLeft(time.Minute)
			})
		})
	}
}

// TestDoneBeforeTheNodeIsAwaited: a person says so while the drain is paused, and it continues as new before it comes
// to that.
func TestDoneBeforeTheNodeIsAwaited(t *testing.T) {
	t.Parallel()
	opts, blocked := blockable(sim.Options{})
	blocked.set("evict", true)
	play(t, opts, func(s *scene) {
		s.settle()
		run := s.drain(drainOf("node-a"))
		s.awaitPhase("node-a", evicting, 30*time.Second)
		s.tellDrain("node-a", jobs.SignalDone)
		time.Sleep(time.Second)
		s.drainMustContinue("node-a")
		blocked.set("evict", false)
		require.Equal(s, workflows.OutcomeDone, s.awaitEnd("node-a", run, 2*time.Minute).result.Outcome)
		s.awaitNothingLeft(time.Minute)
	})
}

// TestRolloutContinuesAsNewAtEveryWait: the same for a rollout, which holds the lease meanwhile, or waits for it.
func TestRolloutContinuesAsNewAtEveryWait(t *testing.T) {
	t.Parallel()
	opts, blocked := blockable(osdsBy("Host"))
	play(t, opts, func(s *scene) {
		status := func() workflows.JobStatus { return s.updateStatus(updateID).JobStatus }
		again := func() {
			s.Helper()
			s.mustContinue(updateID, status)
			time.Sleep(time.Minute)
			s.mustContinue(updateID, status)
		}
		s.settleOSDs()
		blocked.set("evict", true)
		s.drain(drainOf("node-b"))
		s.awaitPhase("node-b", evicting, 30*time.Second)
		s.SetImage("ceph:2")
		s.awaitUpdate("waiting for the lease", time.Minute,
			func(u workflows.UpdateStatus) bool { return u.Phase == workflows.PhaseLease })
		time.Sleep(10 * time.Second)
		claim := s.keeperStatus().Lease.Queue
		require.Len(s, claim, 1)
		again()
		require.Equal(s, claim, s.keeperStatus().Lease.Queue, "the claim is kept, and its place")

		s.tellDrain("node-b", jobs.SignalAbort)
		s.awaitUpdate("replacing", time.Minute,
			func(u workflows.UpdateStatus) bool { return u.Phase == workflows.PhaseReplace })
		blocked.set("create pod", true) // not before: the rehearsal needs it, too, and the old pods still stop
		time.Sleep(20 * time.Second)
		batch, granted := s.updateStatus(updateID).Batch, s.keeperStatus().Lease.Holders
		again()
		require.Equal(s, batch, s.updateStatus(updateID).Batch)
		require.Equal(s, granted, s.keeperStatus().Lease.Holders, "the lease is kept, and its token")

		s.Crashes("ceph:2", true)
		blocked.set("create pod", false)
		s.awaitUpdate("halted", 20*time.Minute,
			func(u workflows.UpdateStatus) bool { return u.Phase == workflows.PhaseArrive && u.Halted != nil })
		time.Sleep(time.Second)
		halted := s.updateStatus(updateID).Halted
		s.mustContinue(updateID, status)
		require.Equal(s, halted, s.updateStatus(updateID).Halted)

		s.StopManager(true)
		s.Crashes("ceph:2", false)
		s.awaitUpdate("healing", 5*time.Minute, func(u workflows.UpdateStatus) bool { return u.Phase == workflows.PhaseHeal })
		time.Sleep(10 * time.Second)
		again()
		s.tellRollout(jobs.SignalPause, nil)
		s.StopManager(false)
		s.awaitUpdate("paused", 5*time.Minute, func(u workflows.UpdateStatus) bool { return u.Phase == workflows.PhaseRest })
		again()
		require.Equal(s, 2, s.Images()["ceph:2"], "it is paused")
		s.tellRollout(jobs.SignalResume, nil)
		s.awaitImage("ceph:2", 20*time.Minute)
		s.awaitWhole()
	})
}

// TestFenceContinuesAsNewAtEveryWait: the same for a fence of a Machine that somebody deletes, which needs the lease.
func TestFenceContinuesAsNewAtEveryWait(t *testing.T) {
	t.Parallel()
	opts, blocked := blockable(sim.Options{})
	play(t, opts, func(s *scene) {
		const node = "node-e"
		id := jobs.FenceNode.ID(node)
		again := func(phase string) {
			s.Helper()
			if !s.Await(5*time.Minute, func() bool { return s.fenceStatus(node).Phase == phase }) {
				s.Errorf("the fence should be %s: %+v", phase, s.fenceStatus(node))
			}
			time.Sleep(10 * time.Second)
			for range 2 {
				s.mustContinue(id, func() workflows.JobStatus { return s.fenceStatus(node).JobStatus })
				time.Sleep(time.Minute)
			}
		}
		s.fenced()
		blocked.set("evict", true)
		s.drain(drainOf("node-a"))
		s.awaitPhase("node-a", evicting, 30*time.Second)
		s.machines.Idle(true)
		s.LoseQuorum(true)
		s.machines.Delete(node)
		run := s.start(id, jobs.FenceNode.Type, workflows.FenceNodeInput{Node: node})
		again(workflows.PhaseHeld)
		require.Contains(s, s.fenceStatus(node).WaitsFor, "nothing is known")

		s.LoseQuorum(false)
		again(workflows.PhaseLease)
		require.Len(s, s.keeperStatus().Lease.Queue, 1)
		require.Len(s, s.machines.Held(), 6)

		s.tellDrain("node-a", jobs.SignalAbort)
		again(workflows.PhaseRemediate)
		granted := s.keeperStatus().Lease.Holders
		require.Len(s, granted, 1)
		require.NotContains(s, s.machines.Held(), node, "it stays released")

		s.StopManager(true) // so that nobody knows whether the data is whole
		s.machines.Idle(false)
		again(workflows.PhaseHeal)
		s.StopManager(false)
		e := s.awaitFence(node, run)
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeGone, e.fence.Outcome)
		require.Equal(s, 1, s.machines.Fences(node))
		s.heldAgain()
		s.awaitNothingLeft(time.Minute)
	})
}
