package workflows_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
