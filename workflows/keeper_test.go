package workflows_test

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TestKeeperAtRestDoesNothing but to confirm its status every five minutes, in one request.
func TestKeeperAtRestDoesNothing(t *testing.T) {
	t.Parallel()
	var requests, confirmed atomic.Int64
	count := func(_ context.Context, op string) sim.Failure {
		switch {
		case op == "patch status":
			confirmed.Add(1)
		case !strings.HasPrefix(op, "ceph "):
			requests.Add(1)
		}
		return sim.Failure{}
	}
	play(t, sim.Options{Fail: count}, func(s *scene) {
		s.settle()
		time.Sleep(time.Minute)
		requests.Store(0)
		confirmed.Store(0)
		before := s.attempts
		time.Sleep(time.Hour)
		require.Equal(s, before+12, s.attempts, "activities in an hour of rest")
		require.Equal(s, int64(12), confirmed.Load(), "the status is confirmed")
		require.Zero(s, requests.Load(), "other requests to the API server")
	})
}

// TestAKeeperAtRestContinuesAsNew although nothing but its own confirmations makes its history grow.
func TestAKeeperAtRestContinuesAsNew(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		s.post(func() { s.suggestContinueAsNew(true) })
		before := s.continued
		require.True(s, s.until(6*time.Minute, func() bool { return s.continued > before }))
		time.Sleep(time.Minute)
		require.Equal(s, "any node", s.Status().MayDrain)
	})
}

func TestOSDDownOpensItsZone(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		s.KillOSD(0)
		s.awaitBudget(only("x"), 5*time.Second)
		require.Empty(s, s.Memory().Flags, "nobody planned this")
		s.awaitBudget(atRest, time.Minute)
	})
}

func TestTheOpeningMovesOn(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		done := s.KubectlDrain("node-d")
		s.awaitBudget(only("x"), 4*time.Second) // once all others have reported
		require.NoError(s, <-done)
		s.KillOSD(5)
		s.awaitBudget("closed", 2*time.Second)
		s.BreakDisk(5)
		s.PersonCordons("node-d", false)
		s.awaitBudget(only("z"), time.Minute)
		s.awaitBudget("at rest, 4 must stay", 5*time.Minute) // once its data is elsewhere
	})
}

func TestNoQuorumCloses(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		s.LoseQuorum(true)
		s.awaitBudget("closed", 15*time.Second)
		time.Sleep(20 * time.Minute)
		require.Equal(s, "closed", s.Budget())
		s.LoseQuorum(false)
		s.awaitBudget(atRest, time.Minute)
	})
}

// TestDeadManager: with no manager all PGs are said to be clean for ever.
func TestDeadManager(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		s.KillOSD(0)
		s.awaitBudget(only("x"), 5*time.Second)
		s.StopManager(true)
		time.Sleep(20 * time.Minute)
		require.Equal(s, "closed", s.Budget(), "osd.0 is long back, but nobody knows whether its data is whole")
		s.StopManager(false)
		s.awaitBudget(atRest, time.Minute)
	})
}

// TestDeadDiskBlocksNobody: rook/rook 15341 and 15408.
func TestDeadDiskBlocksNobody(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{OSDsPerNode: 2}, func(s *scene) {
		s.startKeeper()
		s.awaitBudget("at rest, 11 must stay", time.Minute)
		s.BreakDisk(2)
		s.awaitBudget(only("y"), 4*time.Second)
		s.awaitBudget("at rest, 10 must stay", 5*time.Minute)
		done := s.KubectlDrain("node-a")
		time.Sleep(20 * time.Second)
		select {
		case err := <-done:
			require.NoError(s, err)
		default:
			s.Error("kubectl drain a is not through")
		}
		s.PersonCordons("node-a", false)
		s.awaitBudget("at rest, 10 must stay", time.Minute)
	})
}

func TestCordonIsAnAnnouncement(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		s.PersonCordons("node-b", true)
		s.awaitBudget(only("y"), 4*time.Second)
		time.Sleep(50 * time.Second)
		require.Equal(s, only("y"), s.Budget())
		s.awaitBudget(atRest, 15*time.Second)
		time.Sleep(20 * time.Minute)
		require.Equal(s, atRest, s.Budget(), "a node that is left cordoned blocks nobody")
	})
}

func TestUnmanaged(t *testing.T) {
	t.Parallel()
	off := false
	play(t, sim.Options{Spec: &v1alpha1.CephSpec{ManagePodBudgets: &off}}, func(s *scene) {
		s.startKeeper()
		require.True(s, s.Await(time.Minute,
			func() bool { return meta.IsStatusConditionTrue(s.Status().Conditions, v1alpha1.ConditionDataClean) }))
		require.Equal(s, "none", s.Budget())
		require.True(s, meta.IsStatusConditionFalse(s.Status().Conditions, v1alpha1.ConditionProtected))
	})
}

func TestPGHealthTimeout(t *testing.T) {
	t.Parallel()
	spec := &v1alpha1.CephSpec{PGHealthCheckTimeout: &metav1.Duration{Duration: 5 * time.Minute}}
	play(t, sim.Options{Spec: spec}, func(s *scene) {
		s.settle()
		s.KillOSD(0)
		s.awaitBudget(only("x"), 5*time.Second)
		s.StopManager(true)
		s.awaitBudget("closed", time.Minute)
		time.Sleep(4 * time.Minute)
		require.Equal(s, "closed", s.Budget())
		s.awaitBudget(atRest, 2*time.Minute)
		s.StopManager(false)
	})
}

func TestPolicyDeletedAtRest(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		s.DeletePolicy()
		require.True(s, s.Await(time.Minute, func() bool { return !s.runs(workflows.KeeperID(sim.Key)) }), "the keeper ends")
		require.Equal(s, "none", s.Budget())
		require.Empty(s, s.Leftovers())
	})
}

// TestKeeperOfNoPolicy ends without having changed anything.
func TestKeeperOfNoPolicy(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.DeletePolicy()
		s.startKeeper()
		require.True(s, s.Await(time.Minute, func() bool { return !s.runs(workflows.KeeperID(sim.Key)) }))
		require.Equal(s, "none", s.Budget())
	})
}

// TestKeeperTerminated: the last budget stays, and the next keeper goes on.
func TestKeeperTerminated(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		s.killKeeper()
		require.Equal(s, atRest, s.Budget())
		s.KillOSD(0) // the watcher starts another keeper
		s.awaitBudget("closed", 5*time.Second)
		s.awaitBudget(atRest, time.Minute)
	})
}

// TestKeeperContinuesAsNew with all that it knows: no drain notices, nothing opens or closes.
func TestKeeperContinuesAsNew(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		first := s.drain(drainOf("node-d"))
		s.awaitPhase("node-d", awaitingNode, 30*time.Second)
		second := s.drain(drainOf("node-b"))
		s.awaitPhase("node-b", acquiringLease, 30*time.Second)
		time.Sleep(time.Second)
		before := s.keeperStatus()
		for range 3 {
			s.continueKeeper()
			time.Sleep(time.Second)
		}
		after := s.keeperStatus()
		require.Equal(s, before.Decision, after.Decision)
		require.Equal(s, before.Since, after.Since)
		require.Equal(s, before.Lease, after.Lease)
		require.Equal(s, before.Flags, after.Flags)
		require.Equal(s, strconv.Itoa(sim.FirstVersion.Release), after.View.Version, "the doctor asks for it")
		require.Equal(s, only("x"), s.Budget())
		require.Equal(s, "lockkeeper", s.Noout("node-d"))
		s.tellDrain("node-d", jobs.SignalDone)
		s.awaitEnd("node-d", first, 2*time.Minute)
		s.awaitPhase("node-b", awaitingNode, time.Minute)
		s.tellDrain("node-b", jobs.SignalDone)
		s.awaitEnd("node-b", second, 2*time.Minute)
		s.awaitNothingLeft(0)
	})
}
