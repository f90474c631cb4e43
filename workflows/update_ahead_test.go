package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file is about the lease that goes from one batch to the next without being asked for again.

func TestLeaseIsHandedOn(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("OSD"), func(s *scene) {
		s.settleOSDs()
		began, batches, asked := s.attempts, 0, 0
		s.update(func() {
			s.onAttempt = func(n int, info activity.Info) {
				switch {
				case n < began:
				case info.ActivityType.Name == "ReplaceBatch":
					batches++
				case info.ActivityType.Name == "RequestLease" && batches > 0:
					asked++
				}
			}
		})
		s.SetImage("ceph:2")
		s.awaitImage("ceph:2", 10*time.Minute)
		s.awaitWhole()
		require.Equal(s, 12, batches)
		require.Zero(s, asked, "all but the first were asked for while the storage healed")
	})
}

// healingRollout plays until a batch heals and the next one was asked for.
func (s *scene) healingRollout() (before int) {
	s.Helper()
	s.settleOSDs()
	s.SetImage("ceph:2")
	s.awaitUpdate("healing", time.Minute, func(u workflows.UpdateStatus) bool {
		l := s.keeperStatus().Lease
		return u.Phase == workflows.PhaseHeal && len(l.Holders) == 1 && l.Holders[0].Next != nil
	})
	return s.Images()["ceph:2"]
}

// TestPausedWhileTheNextIsAskedFor: the lease comes unasked, and must neither be used nor kept.
func TestPausedWhileTheNextIsAskedFor(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("OSD"), func(s *scene) {
		done := s.healingRollout()
		s.tellRollout(jobs.SignalPause, nil)
		time.Sleep(10 * time.Minute)
		require.Equal(s, done, s.Images()["ceph:2"])
		require.Empty(s, s.Leftovers())
		require.Equal(s, activities.HoldPaused, s.updateStatus(updateID).Holds)
		s.tellRollout(jobs.SignalResume, nil)
		s.awaitImage("ceph:2", 10*time.Minute)
		s.awaitWhole()
	})
}

// TestSkippedWhileTheNextIsAskedFor: the lease that comes is of an OSD that a person has just excused.
func TestSkippedWhileTheNextIsAskedFor(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("OSD"), func(s *scene) {
		s.healingRollout()
		next := s.keeperStatus().Lease.Holders[0].Next.Daemons[0]
		s.tellRollout(jobs.SignalSkip, next)
		require.True(s, s.Await(10*time.Minute, func() bool { return s.Images()["ceph:2"] == 11 && !s.runs(updateID) }),
			"%v", s.Images())
		require.NotEqual(s, "ceph:2", s.Image(next))
		s.awaitWhole()
	})
}

// TestKeeperForgetsWhatIsNext: one that was terminated and came back knows the lease from the policy's status, and not
// what was to follow it.
func TestKeeperForgetsWhatIsNext(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("OSD"), func(s *scene) {
		s.healingRollout()
		s.killKeeper()
		s.awaitImage("ceph:2", 20*time.Minute)
		s.awaitWhole()
	})
}

// TestDrainGoesFirst: whoever waits when a batch is whole has his turn before the batch that was asked for ahead.
func TestDrainGoesFirst(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("OSD"), func(s *scene) {
		done := s.healingRollout()
		s.drain(workflows.DrainNodeInput{Node: "node-f", Policy: sim.Key.String()})
		require.True(s, s.Await(time.Minute, func() bool {
			l := s.keeperStatus().Lease
			return len(l.Holders) == 1 && l.Holders[0].Node == "node-f"
		}))
		require.LessOrEqual(s, s.Images()["ceph:2"], done)
	})
}

// TestBatchIsDoneInSilence: the mons fall silent when a batch has just come back. The keeper hears that it is done all
// the same, and not only when the next look of the rollout succeeds.
func TestBatchIsDoneInSilence(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("Host"), func(s *scene) {
		s.settleOSDs()
		served, silent := false, false
		s.update(func() {
			s.onAttempt = func(_ int, info activity.Info) {
				switch info.ActivityType.Name {
				case "ConfirmOSDs":
					served = true
				case "SurveyOSDs":
					if served && !silent {
						silent = true
						s.LoseQuorum(true)
					}
				}
			}
		})
		s.SetImage("ceph:2")
		require.True(s, s.Await(time.Minute, func() bool { return silent }))
		finishing := func() bool {
			l := s.keeperStatus().Lease
			return len(l.Holders) == 1 && l.Holders[0].Finishing
		}
		require.True(s, s.Await(8*time.Second, finishing), "%+v %+v", s.updateStatus(updateID), s.keeperStatus().Lease)
		s.LoseQuorum(false)
		s.awaitImage("ceph:2", 10*time.Minute)
		s.awaitWhole()
	})
}
