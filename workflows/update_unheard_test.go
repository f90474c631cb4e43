package workflows_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TestOSDsThatNobodyHearsGoFirst: while an OSD has lost the monitors no failure domain opens but its own, so a rollout
// that began elsewhere would wait for a person.
func TestOSDsThatNobodyHearsGoFirst(t *testing.T) {
	t.Parallel()
	lost := []string{"osd.10", "osd.11"}
	lose := func(s *scene) {
		for _, osd := range lost {
			s.Disconnect(osd)
		}
		time.Sleep(10 * time.Second) // until whoever asks twice knows
	}
	for name, world := range map[string]sim.Options{
		"Zone": osdsBy("Zone"), "Host": osdsBy("Host"), "OSD": osdsBy("OSD"),
		"canary":     osdsBy("Zone", map[string]any{"canary": map[string]any{"soak": "1m"}}),
		"one by one": osdsBy("Zone", map[string]any{"maxParallel": int64(1)}),
		"one by one, with a canary": osdsBy("Zone", map[string]any{
			"maxParallel": int64(1), "canary": map[string]any{"soak": "1m"},
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, world, func(s *scene) {
				s.settleOSDs()
				lose(s)
				s.SetImage("ceph:2")
				s.awaitUpdate("under way with them", time.Minute, func(u workflows.UpdateStatus) bool {
					return u.Batch != nil && slices.Contains(u.Batch.OSDs, lost[0]) &&
						(strings.HasPrefix(name, "one by one") || slices.Contains(u.Batch.OSDs, lost[1]))
				})
				s.awaitImage("ceph:2", 20*time.Minute)
				s.awaitWhole()
			})
		})
	}
	t.Run("they lose them while a drain holds the lease", func(t *testing.T) {
		t.Parallel()
		play(t, osdsBy("Zone"), func(s *scene) {
			s.settleOSDs()
			const node = "node-b"
			away := s.OSDsOn(node)
			require.NoError(s, <-s.KubectlDrain(node))
			s.SetImage("ceph:2")
			time.Sleep(5 * time.Second) // who excuses an OSD means the template that the rollout has seen
			s.awaitUpdate("under way", time.Minute, func(u workflows.UpdateStatus) bool {
				return strings.Contains(u.WaitsFor, away[0])
			})
			for _, osd := range away {
				s.tellRollout(jobs.SignalSkip, osd)
			}
			s.awaitUpdate("waiting for the drain", 5*time.Minute, func(u workflows.UpdateStatus) bool {
				return u.Holds == activities.HoldLease && strings.Contains(u.WaitsFor, jobs.DrainNode.ID(node))
			})
			since := s.updateStatus(updateID).Since
			time.Sleep(time.Minute)
			s.Disconnect(lost[0])
			s.Disconnect(lost[1])
			time.Sleep(10 * time.Second)
			require.Equal(s, since, s.updateStatus(updateID).Since)
			s.Reboot(node)
			time.Sleep(5 * time.Second)
			s.PersonCordons(node, false)
			s.awaitImage("ceph:2", 5*time.Minute)
			s.awaitWhole()
		})
	})
	t.Run("they lose them while its lease is waited for", func(t *testing.T) {
		t.Parallel()
		play(t, osdsBy("Zone"), func(s *scene) {
			s.settleOSDs()
			s.Hang(true, "osd.8")
			s.SetImage("ceph:2")
			s.awaitUpdate("waiting for a sign of life", time.Minute, holdsFor(activities.HoldLease))
			s.Disconnect(lost[0])
			s.Disconnect(lost[1])
			time.Sleep(time.Minute)
			s.Hang(false, "osd.8")
			s.awaitImage("ceph:2", 20*time.Minute)
			s.awaitWhole()
		})
	})
	t.Run("they lose them while the storage heals", func(t *testing.T) {
		t.Parallel()
		play(t, osdsBy("OSD"), func(s *scene) {
			s.settleOSDs()
			s.SetImage("ceph:2")
			s.awaitUpdate("waiting for the data", time.Minute, func(u workflows.UpdateStatus) bool {
				return u.Phase == workflows.PhaseHeal
			})
			s.Disconnect(lost[0])
			s.Disconnect(lost[1])
			s.awaitImage("ceph:2", 4*time.Minute)
			s.awaitWhole()
		})
	})
	t.Run("restart", func(t *testing.T) {
		t.Parallel()
		play(t, sim.Options{OSDsPerNode: 2}, func(s *scene) {
			s.startKeeper()
			s.awaitBudget("at rest, 11 must stay", time.Minute)
			lose(s)
			run := s.start(restartID, jobs.RestartOSDs.Type, workflows.RestartOSDsInput{
				Namespace: sim.Key.Namespace, UpdateDomain: "Host", Reason: "keys were changed",
			})
			e := s.awaitRollout(restartID, run, 10*time.Minute)
			require.NoError(s, e.err)
			require.Equal(s, 12, e.rollout.Replaced)
			s.awaitWhole()
		})
	})
}

// TestAnotherOneIsNotHeard: what is open for those that nobody hears closes when nobody hears one elsewhere either.
func TestAnotherOneIsNotHeard(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.startKeeper()
		s.awaitBudget("at rest, 5 must stay", time.Minute)
		s.Disconnect("osd.5")
		time.Sleep(10 * time.Second)
		run := s.drain(workflows.DrainNodeInput{Node: "node-f"})
		s.awaitPhase("node-f", workflows.PhaseReturn, time.Minute)
		time.Sleep(30 * time.Second)
		s.awaitBudget("only zone [zone-z] is open", time.Second)
		s.Disconnect("osd.3")
		s.awaitBudget("closed", 10*time.Second) // of which it takes 6 until it is known
		require.Equal(s, budget.ReasonDisconnected, s.keeperStatus().Decision.Reason)
		s.Reconnect()
		s.Reboot("node-f")
		time.Sleep(5 * time.Second)
		s.PersonCordons("node-f", false)
		require.NoError(s, s.awaitEnd("node-f", run, 5*time.Minute).err)
	})
}

// TestGroupsStandStill: when an OSD comes back, groups do not go on whose leader, elsewhere, has lost the monitors.
// A drain keeps what it holds until a person has restarted that leader, and says why.
func TestGroupsStandStill(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.startKeeper()
		s.awaitBudget("at rest, 5 must stay", time.Minute)
		run := s.drain(workflows.DrainNodeInput{Node: "node-f"})
		s.awaitPhase("node-f", workflows.PhaseReturn, time.Minute)
		s.Disconnect("osd.0")
		s.awaitBudget("closed", 10*time.Second)
		s.Reboot("node-f")
		s.PersonCordons("node-f", false)
		time.Sleep(time.Minute)
		require.Equal(s, s.OSDs(), s.Up())
		require.False(s, s.Clean(), "osd.0 leads its groups nowhere")
		require.Len(s, s.keeperStatus().Lease.Holders, 1)
		require.Contains(s, s.drainStatus("node-f").WaitsFor,
			"1 of 6 OSDs that are up have no session with a monitor: restart osd.0")
		s.awaitBudget("closed", time.Second)
		require.Equal(s, budget.ReasonDisconnected, s.keeperStatus().Decision.Reason)
		require.Contains(s, s.keeperStatus().Decision.Message, "osd.0")
		s.Reconnect()
		require.NoError(s, s.awaitEnd("node-f", run, 2*time.Minute).err)
		s.awaitWhole()
	})
}
