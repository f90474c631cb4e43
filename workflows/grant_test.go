package workflows_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TestOSDGoesBetweenGrantAndTelling: the lease of zone x is granted, and before the rollout hears of it an OSD of zone
// y is evicted and does not come back. No budget keeps a rollout from deleting pods, so it must not hear of it.
func TestOSDGoesBetweenGrantAndTelling(t *testing.T) {
	t.Parallel()
	var (
		world *scene
		armed atomic.Bool
		gone  atomic.Bool
	)
	opts := sim.Options{OSDsPerNode: 2, Fail: func(_ context.Context, op string) sim.Failure {
		// The grant is written down, and the budgets are about to close for it.
		if op == "update budget" && armed.Load() && len(world.Memory().Lease.Holders) > 0 &&
			armed.CompareAndSwap(true, false) {
			world.PersonCordons("node-b", true)
			gone.Store(world.EvictAny("osd.2"))
		}
		return sim.Failure{}
	}}
	play(t, opts, func(s *scene) {
		s.startKeeper()
		s.awaitBudget("at rest, 11 must stay", time.Minute)
		world = s
		armed.Store(true)
		s.start(restartID, jobs.RestartOSDs.Type,
			workflows.RestartOSDsInput{Namespace: sim.Key.Namespace, UpdateDomain: "Host"})
		// Ceph takes osd.2 out after 30 s and makes its data whole elsewhere: then nothing speaks against zone x
		time.Sleep(25 * time.Second)
		require.True(s, gone.Load(), "the eviction was to come in between")
		require.Equal(s, []string{"osd.2"}, s.Stopped())
		require.Zero(s, s.Restarts())
		require.Equal(s, workflows.PhaseArrive, s.updateStatus(restartID).Phase, "it has looked again, and waits for osd.2")
		s.PersonCordons("node-b", false)
		require.True(s, s.Await(20*time.Minute, func() bool { return s.Restarts() == 12 && !s.runs(restartID) }), "%+v",
			s.updateStatus(restartID))
		s.awaitWhole()
	})
}

// TestLastWordIsTold: why a job waits changes twice within a moment, and then not for long. A job hears only every few
// seconds that just the wording has changed, but it does hear what is true in the end.
func TestLastWordIsTold(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{OSDsPerNode: 2}, func(s *scene) {
		s.startKeeper()
		s.awaitBudget("at rest, 11 must stay", time.Minute)
		s.KillOSD(2) // it comes back after 2 s
		s.awaitBudget("only zone [zone-y] is open", time.Minute)
		s.StopManager(true) // so that nobody says that the data is whole
		s.drain(workflows.DrainNodeInput{Node: "node-a", Policy: sim.Key.String()})
		time.Sleep(10 * time.Second)
		queue := s.keeperStatus().Lease.Queue
		require.Len(s, queue, 1)
		require.Contains(s, queue[0].WaitsFor, "not yet reported")
		require.Contains(s, s.drainStatus("node-a").WaitsFor, queue[0].WaitsFor)
	})
}
