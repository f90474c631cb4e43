package workflows_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/turns"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file is about rollouts that hold back although nothing is wrong, and about those that must not.

func holdsFor(why string) func(workflows.UpdateStatus) bool {
	return func(u workflows.UpdateStatus) bool { return u.Holds == why }
}

// nightly is a window from three o'clock for so long, every night.
func nightly(duration string) map[string]any {
	return map[string]any{"windows": []any{map[string]any{"schedule": "0 3 * * *", "duration": duration}}}
}

func TestWindow(t *testing.T) {
	turns.Await(t, t.Name(), 7*time.Second)
	t.Parallel()
	play(t, osdsBy("Host", nightly("1h")), func(s *scene) { // it is midnight
		s.settleOSDs()
		s.SetImage("ceph:2")
		u := s.awaitUpdate("waiting for its window", time.Minute, holdsFor(activities.HoldWindow))
		require.Contains(s, u.WaitsFor, "T03:00:00Z")
		require.Equal(s, "OutsideWindow", s.CephOSD().Status.Reason)
		time.Sleep(2 * time.Hour)
		require.Empty(s, s.Stopped())
		require.Empty(s, s.Leftovers(), "nobody has to wait for it")
		s.awaitImage("ceph:2", 90*time.Minute)
		require.GreaterOrEqual(s, time.Now().UTC().Hour(), 3)
		s.awaitWhole()
	})
}

// TestWindowClosesWhileItWaits: whoever holds the lease may take longer than the window is open.
func TestWindowClosesWhileItWaits(t *testing.T) {
	turns.Await(t, t.Name(), 12*time.Second)
	t.Parallel()
	twice := map[string]any{"windows": []any{map[string]any{"schedule": "0 3,5 * * *", "duration": "10m"}}}
	play(t, osdsBy("Host", twice), func(s *scene) {
		s.settleOSDs()
		s.SetImage("ceph:2")
		s.awaitUpdate("waiting for its window", time.Minute, holdsFor(activities.HoldWindow))
		for _, osd := range s.OSDsOn("node-b") {
			s.tellRollout(jobs.SignalSkip, osd)
		}
		s.sleepUntil(2, 59)
		require.NoError(s, <-s.KubectlDrain("node-b")) // and nobody brings it back soon
		s.awaitUpdate("waiting for the drain", 5*time.Minute, func(u workflows.UpdateStatus) bool {
			return u.Holds == activities.HoldLease && strings.Contains(u.WaitsFor, jobs.DrainNode.ID("node-b"))
		})
		s.sleepUntil(3, 20)
		require.Equal(s, activities.HoldWindow, s.updateStatus(updateID).Holds)
		s.Reboot("node-b")
		time.Sleep(5 * time.Second)
		s.PersonCordons("node-b", false)
		time.Sleep(time.Hour)
		require.Empty(s, s.Stopped(), "the window has closed")
		require.True(s, s.Await(time.Hour, func() bool { return s.Images()["ceph:2"] >= 10 && !s.runs(updateID) }), "%v %+v",
			s.Images(), s.updateStatus(updateID))
		s.awaitWhole()
	})
}

// sleepUntil sleeps until it is so late, in UTC.
func (s *scene) sleepUntil(hour, minute int) {
	now := time.Now().UTC()
	time.Sleep(time.Date(now.Year(), now.Month(), now.Day(), hour, minute, 0, 0, time.UTC).Sub(now))
}

func TestBrokenOSDsAreReplacedOutsideOfWindows(t *testing.T) {
	turns.Await(t, t.Name(), 8*time.Second)
	t.Parallel()
	play(t, osdsBy("Host"), func(s *scene) {
		s.settleOSDs()
		s.Crashes("ceph:2", true)
		s.SetImage("ceph:2")
		s.awaitUpdate("halted", 5*time.Minute, func(u workflows.UpdateStatus) bool { return u.Halted != nil })
		broken := s.Stopped()
		s.EditCephOSD("a window that is shut", func(spec map[string]any) { spec["windows"] = nightly("1h")["windows"] })
		s.SetImage("ceph:3")
		s.awaitUpdate("waiting for its window", 5*time.Minute, holdsFor(activities.HoldWindow))
		require.Equal(s, 2, s.Images()["ceph:3"], "what was broken")
		require.Equal(s, []string{"osd.0", "osd.1"}, broken)
		require.Empty(s, s.Stopped())
		s.awaitImage("ceph:3", 4*time.Hour)
		s.awaitWhole()
	})
}

// TestSpecPaused: no batch begins, not even of what is broken; and what is away keeps its lease and noout as long as
// that lasts.
func TestSpecPaused(t *testing.T) {
	turns.Await(t, t.Name(), 7*time.Second)
	t.Parallel()
	paused := func(is bool) func(map[string]any) { return func(spec map[string]any) { spec["paused"] = is } }
	play(t, osdsBy("Host", map[string]any{"paused": true}), func(s *scene) {
		s.settleOSDs()
		s.SetImage("ceph:2")
		s.awaitUpdate("paused", time.Minute, holdsFor(activities.HoldPaused))
		time.Sleep(3 * time.Hour)
		require.Empty(s, s.Stopped())
		require.Equal(s, "Paused", s.CephOSD().Status.Reason)
		s.DeletePod("osd.5")
		s.Crashes("ceph:3", true)
		require.True(s, s.Await(2*time.Minute, func() bool { return s.Images()["ceph:2"] == 1 }),
			"a pod that is missing is made all the same: %v", s.Images())

		s.SetImage("ceph:3")
		s.EditCephOSD("no pause", paused(false))
		s.awaitUpdate("halted", 5*time.Minute, func(u workflows.UpdateStatus) bool { return u.Halted != nil })
		s.EditCephOSD("pause", paused(true))
		s.SetImage("ceph:4")
		s.awaitUpdate("paused", time.Minute, holdsFor(activities.HoldPaused))
		time.Sleep(time.Minute)
		require.Zero(s, s.Images()["ceph:4"])
		require.NotEmpty(s, s.NooutOSDs(), "its OSDs are away")
		s.EditCephOSD("no pause", paused(false))
		s.awaitImage("ceph:4", 20*time.Minute)
		s.awaitWhole()
	})
}

func TestPauseBetweenAndMaxParallel(t *testing.T) {
	turns.Await(t, t.Name(), 6*time.Second)
	t.Parallel()
	play(t, osdsBy("Zone", map[string]any{"pauseBetween": "30m", "maxParallel": int64(3)}), func(s *scene) {
		s.settleOSDs()
		began := time.Now()
		s.SetImage("ceph:2")
		s.awaitUpdate("pausing", 5*time.Minute, holdsFor(activities.HoldPause))
		require.Equal(s, map[string]int{sim.FirstImage: 9, "ceph:2": 3}, s.Images())
		require.Empty(s, s.Leftovers())
		time.Sleep(25 * time.Minute)
		require.Equal(s, 3, s.Images()["ceph:2"])
		s.awaitImage("ceph:2", 5*time.Hour)
		// By zones of four, three at most: six batches, and five pauses.
		require.Greater(s, time.Since(began), 150*time.Minute)
		s.awaitWhole()
	})
}

func soaking(soak string, approval bool) map[string]any {
	return map[string]any{"canary": map[string]any{"soak": soak, "approval": approval}}
}

// TestCanaryIsRememberedOverContinueAsNew: neither its soak nor a person's word is lost with a history.
func TestCanaryIsRememberedOverContinueAsNew(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("Zone", soaking("5m", true)), func(s *scene) {
		s.settleOSDs()
		s.SetImage("ceph:2")
		u := s.awaitUpdate("soaking", time.Minute, holdsFor(activities.HoldSoak))
		s.continueJob(updateID)
		s.signal(updateID, workflows.SignalOSDsChanged, nil)
		time.Sleep(time.Minute)
		require.Equal(s, u.Canary.Whole, s.updateStatus(updateID).Canary.Whole)
		require.Equal(s, 1, s.Images()["ceph:2"])
		s.awaitUpdate("waiting for approval", 10*time.Minute, holdsFor(activities.HoldApproval))
		// In one go: a signal that comes with the last word of the history is heard, too.
		s.continueJob(updateID)
		s.tellRollout(jobs.SignalApprove, nil)
		s.awaitImage("ceph:2", 10*time.Minute)
		require.Positive(s, s.continued)
		s.awaitWhole()
	})
}

// TestCanaryThatStartsAnew has to serve for its whole time once more, and to be approved once more.
func TestCanaryThatStartsAnew(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("Zone", soaking("10m", true)), func(s *scene) {
		s.settleOSDs()
		s.SetImage("ceph:2")
		u := s.awaitUpdate("soaking", time.Minute, holdsFor(activities.HoldSoak))
		time.Sleep(5 * time.Minute)
		s.tellRollout(jobs.SignalApprove, nil)
		s.Kill(u.Canary.OSD, 2*time.Second)
		u = s.awaitUpdate("soaking once more", 10*time.Minute,
			func(u workflows.UpdateStatus) bool { return u.Canary.Restarts == 1 })
		require.False(s, u.Canary.Approved)
		require.Contains(s, u.WaitsFor, "started anew 1 times")
		s.awaitUpdate("waiting for approval", 11*time.Minute, holdsFor(activities.HoldApproval))
		require.Equal(s, 1, s.Images()["ceph:2"])
		s.tellRollout(jobs.SignalApprove, nil)
		s.awaitImage("ceph:2", 10*time.Minute)
		s.awaitWhole()
	})
}

// TestCanaryWithSlowOperations serves, and is not well: the others wait until it is, or a person says so.
func TestCanaryWithSlowOperations(t *testing.T) {
	t.Parallel()
	for _, approved := range []bool{false, true} {
		t.Run(fmt.Sprintf("approved %t", approved), func(t *testing.T) {
			play(t, osdsBy("Zone", soaking("5m", false)), func(s *scene) {
				s.settleOSDs()
				s.SetImage("ceph:2")
				u := s.awaitUpdate("soaking", time.Minute, holdsFor(activities.HoldSoak))
				s.SlowOperations(u.Canary.OSD)
				u = s.awaitUpdate("mistrusted", 10*time.Minute,
					func(u workflows.UpdateStatus) bool { return strings.Contains(u.WaitsFor, "has slow operations") })
				require.Nil(s, u.Halted)
				u = s.awaitUpdate("halted", 20*time.Minute, func(u workflows.UpdateStatus) bool { return u.Halted != nil })
				require.Contains(s, u.Halted.Reason, "has not been well since")
				require.Equal(s, 1, s.Images()["ceph:2"])
				if approved {
					s.tellRollout(jobs.SignalApprove, nil)
					s.awaitImage("ceph:2", 4*time.Minute)
				} else {
					s.SlowOperations("")
					u = s.awaitUpdate("soaking once more", 2*time.Minute,
						func(u workflows.UpdateStatus) bool { return strings.Contains(u.WaitsFor, "to have served until") })
					require.Nil(s, u.Halted)
					s.awaitImage("ceph:2", 10*time.Minute)
				}
				s.awaitWhole()
			})
		})
	}
}

// TestCanaryThatDoesNotCome is not approved, whoever says so; if a person excuses it, another one is the canary.
func TestCanaryThatDoesNotCome(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("OSD", soaking("1m", false)), func(s *scene) {
		s.settleOSDs()
		s.BreakDisk(0)
		time.Sleep(2 * time.Minute)
		s.SetImage("ceph:2")
		u := s.awaitUpdate("halted", 10*time.Minute,
			func(u workflows.UpdateStatus) bool { return u.Halted != nil && s.Image("osd.0") == "ceph:2" })
		require.Zero(s, s.Images()["ceph:2"])
		s.tellRollout(jobs.SignalApprove, nil)
		time.Sleep(time.Minute)
		require.False(s, s.updateStatus(updateID).Canary.Approved)
		require.Empty(s, u.Canary.Whole)
		s.Annotate("osd.0", podspec.StateAnnotation, "")
		u = s.awaitUpdate("soaking", 10*time.Minute, holdsFor(activities.HoldSoak))
		require.NotEqual(s, "osd.0", u.Canary.OSD)
		require.Equal(s, 1, s.Images()["ceph:2"])
		require.True(s, s.Await(20*time.Minute, func() bool { return s.Images()["ceph:2"] == 11 && !s.runs(updateID) }))
	})
}

// TestLeaseIsKeptInMidBatch: while OSDs are away neither a storage cluster that does not answer nor a spec that makes
// no sense takes the noout from them.
func TestLeaseIsKeptInMidBatch(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("Zone"), func(s *scene) {
		s.settleOSDs()
		s.Crashes("ceph:2", true)
		s.SetImage("ceph:2")
		s.awaitUpdate("halted", 5*time.Minute, func(u workflows.UpdateStatus) bool { return u.Halted != nil })
		away := s.NooutOSDs()
		require.Len(s, away, 4)
		s.LoseQuorum(true)
		s.signal(updateID, workflows.SignalOSDsChanged, nil)
		s.awaitUpdate("without an answer", 2*time.Minute, holdsFor(activities.HoldStorage))
		require.NotEqual(s, "UpToDate", s.CephOSD().Status.Reason)
		time.Sleep(2 * time.Minute)
		s.LoseQuorum(false)
		s.awaitUpdate("halted", 5*time.Minute,
			func(u workflows.UpdateStatus) bool { return u.Halted != nil && u.Holds == "" })
		require.Equal(s, away, s.NooutOSDs())

		s.EditCephOSD("no hosts", func(spec map[string]any) { spec["updateDomain"] = "Shelf of nobody" })
		s.awaitUpdate("refused", 2*time.Minute, func(u workflows.UpdateStatus) bool { return len(u.Refused) > 0 })
		time.Sleep(2 * time.Minute)
		require.Equal(s, away, s.NooutOSDs())
		s.EditCephOSD("as before", func(spec map[string]any) { spec["updateDomain"] = "Zone" })
		s.Crashes("ceph:2", false)
		s.awaitImage("ceph:2", 20*time.Minute)
		s.awaitWhole()
	})
}

// TestNodeThatIsCordonedInMidBatch is no fault of the template: the rollout waits for the node and does not halt.
func TestNodeThatIsCordonedInMidBatch(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("Host"), func(s *scene) {
		s.settleOSDs()
		s.Crashes("ceph:2", true)
		s.SetImage("ceph:2")
		u := s.awaitUpdate("waiting for its OSDs", time.Minute,
			func(u workflows.UpdateStatus) bool { return u.Phase == workflows.PhaseArrive })
		require.Equal(s, []string{"osd.0", "osd.1"}, u.Batch.OSDs)
		s.PersonCordons("node-a", true)
		time.Sleep(10 * time.Minute)
		u = s.updateStatus(updateID)
		require.Nil(s, u.Halted)
		require.Contains(s, u.WaitsFor, "node node-a is cordoned")
		s.PersonCordons("node-a", false)
		time.Sleep(30 * time.Second)
		require.Nil(s, s.updateStatus(updateID).Halted, "they have their whole time again")
		s.Crashes("ceph:2", false)
		s.awaitImage("ceph:2", 20*time.Minute)
		s.awaitWhole()
	})
}

// TestSince: to look again, and to find nothing new, does not begin another wait.
func TestSince(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("Host"), func(s *scene) {
		s.settleOSDs()
		s.LoseQuorum(true)
		s.SetImage("ceph:2")
		u := s.awaitUpdate("without an answer", 2*time.Minute, holdsFor(activities.HoldStorage))
		time.Sleep(10 * time.Minute)
		require.Equal(s, u.Since, s.awaitUpdate("still so", time.Minute, holdsFor(activities.HoldStorage)).Since)
		s.LoseQuorum(false)
		s.awaitImage("ceph:2", 20*time.Minute)
		s.awaitWhole()
	})
}

// TestExcusedInMidBatch: an OSD of the batch in work that a person excuses is waited for by nobody. Its noout goes, so
// that its data can move, and the rollout with it.
func TestExcusedInMidBatch(t *testing.T) {
	t.Parallel()
	for name, excuse := range map[string]func(*scene){
		"overridden": func(s *scene) { s.Annotate("osd.0", podspec.StateAnnotation, "") },
		"skipped":    func(s *scene) { s.tellRollout(jobs.SignalSkip, "osd.0") },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, osdsBy("Zone"), func(s *scene) {
				s.settleOSDs()
				s.SetImage("ceph:2")
				s.awaitUpdate("waiting for its OSDs", time.Minute,
					func(u workflows.UpdateStatus) bool { return u.Phase == workflows.PhaseArrive })
				s.BreakDisk(0)
				s.awaitUpdate("halted", 5*time.Minute, func(u workflows.UpdateStatus) bool { return u.Halted != nil })
				require.Contains(s, s.NooutOSDs(), "osd.0")
				excuse(s)
				require.True(s, s.Await(20*time.Minute, func() bool { return s.Images()["ceph:2"] == 11 && !s.runs(updateID) }),
					"%v %+v", s.Images(), s.updateStatus(updateID))
				status := s.CephOSD().Status
				require.Equal(s, "UpToDate", status.Reason)
				require.Nil(s, status.Batch)
				s.awaitNothingLeft(time.Minute)
			})
		})
	}
}

// TestPausedWhileItRests: a person who pauses it reads that it is paused, and not what it waited for before.
func TestPausedWhileItRests(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("Host", map[string]any{"pauseBetween": "10h"}), func(s *scene) {
		s.settleOSDs()
		s.SetImage("ceph:2")
		s.awaitUpdate("pausing", 5*time.Minute, holdsFor(activities.HoldPause))
		s.tellRollout(jobs.SignalPause, nil)
		s.awaitUpdate("paused", time.Minute, holdsFor(activities.HoldPaused))
		time.Sleep(time.Second)
		require.Equal(s, "Paused", s.CephOSD().Status.Reason)
		s.tellRollout(jobs.SignalResume, nil)
		s.awaitUpdate("pausing between batches", time.Minute, holdsFor(activities.HoldPause))
	})
}
