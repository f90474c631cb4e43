package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file is about rollouts that bring another release of Ceph.

// TestReleaseByRelease: mons first, no release skipped, and no OSD stops before its successor may start.
func TestReleaseByRelease(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("Zone", nil), func(s *scene) {
		s.settleOSDs()
		s.SetImage("ceph:20.2.4")
		u := s.awaitUpdate("waiting for the mons", 2*time.Minute, holdsFor(activities.HoldRelease))
		require.Contains(s, u.WaitsFor, "not all monitors are of release 20 yet")
		require.Equal(s, "AwaitingRelease", s.CephOSD().Status.Reason)
		time.Sleep(time.Hour)
		require.Empty(s, s.Stopped())
		require.Empty(s, s.Leftovers(), "nobody has to wait for it")
		s.UpgradeMons(20)
		s.awaitImage("ceph:20.2.4", 20*time.Minute)
		s.awaitWhole()

		s.SetImage("ceph:21.1.0") // all OSDs are of 20, and nobody has told Ceph
		s.UpgradeMons(21)
		u = s.awaitUpdate("waiting for the flag", 6*time.Minute, holdsFor(activities.HoldRelease))
		require.Contains(s, u.WaitsFor, "require_osd_release")
		s.RequireRelease()
		s.awaitImage("ceph:21.1.0", 20*time.Minute)
		s.awaitWhole()
	})
}

// TestWrongRelease: what can never be these OSDs' is refused by field, and costs none.
func TestWrongRelease(t *testing.T) {
	t.Parallel()
	for image, why := range map[string]string{
		"ceph:21.1.0": "more than 2 releases newer",
		"ceph:18.1.9": "cannot go back to 18.1.9",
	} {
		t.Run(image, func(t *testing.T) {
			play(t, osdsBy("Zone", nil), func(s *scene) {
				s.settleOSDs()
				s.UpgradeMons(21)
				s.SetImage(image)
				u := s.awaitUpdate("refused", 2*time.Minute, func(u workflows.UpdateStatus) bool { return len(u.Refused) > 0 })
				require.Equal(s, "spec.podTemplate.spec.containers[0].image", u.Refused[0].Field)
				require.Equal(s, image, u.Refused[0].Value)
				require.Contains(s, u.Refused[0].Allowed, why)
				time.Sleep(time.Hour)
				require.Empty(s, s.Stopped())
				s.SetImage("ceph:20.2.4")
				s.awaitImage("ceph:20.2.4", 20*time.Minute)
				s.awaitWhole()
			})
		})
	}
}

// TestEvictedInTheMiddleOfAnUpgrade: a pod that is made anew has the new image, too, and waits for the mons as others
// do.
func TestEvictedInTheMiddleOfAnUpgrade(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("Zone", nil), func(s *scene) {
		s.settleOSDs()
		s.SetImage("ceph:20.2.4")
		s.awaitUpdate("waiting for the mons", 2*time.Minute, holdsFor(activities.HoldRelease))
		s.DeletePod("osd.0")
		time.Sleep(5 * time.Minute)
		require.Zero(s, s.Images()["ceph:20.2.4"])
		require.Contains(s, s.updateStatus(updateID).WaitsFor, "to get a pod: not all monitors are of release 20")
		s.UpgradeMons(20)
		s.awaitImage("ceph:20.2.4", 20*time.Minute)
		s.awaitWhole()
	})
}

// TestImageThatNeverComes costs no OSD, and leaves nothing behind when it is taken back.
func TestImageThatNeverComes(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("Zone", nil), func(s *scene) {
		s.settleOSDs()
		s.Withhold("ceph:18.2.9", true)
		before := s.CephOSD().Spec.PodTemplate.Spec.Containers[0].Image
		s.SetImage("ceph:18.2.9")
		u := s.awaitUpdate("waiting for the image", 2*time.Minute, holdsFor(activities.HoldRelease))
		require.Contains(s, u.WaitsFor, "ErrImagePull")
		time.Sleep(time.Hour)
		require.Empty(s, s.Stopped())
		require.Len(s, s.Asking(), 1)
		s.SetImage(before)
		require.True(s, s.Await(6*time.Minute, func() bool { return len(s.Asking()) == 0 }))
		s.awaitWhole()

		s.SetImage("ceph:18.2.9")
		s.awaitUpdate("waiting for the image once more", 2*time.Minute, holdsFor(activities.HoldRelease))
		s.Withhold("ceph:18.2.9", false)
		s.awaitImage("ceph:18.2.9", 30*time.Minute)
		s.awaitWhole()
		require.Empty(s, s.Asking())
	})
}

// TestRestartWithAnImage: OSDs that Deployments run get another release as those of a CephOSD do.
func TestRestartWithAnImage(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		restart := func(image string) string {
			in := workflows.RestartOSDsInput{Namespace: sim.Key.Namespace, UpdateDomain: "Zone", Image: image}
			return s.start(restartID, jobs.RestartOSDs.Type, in)
		}
		run := restart("ceph:20.2.4")
		waits := func() bool { return holdsFor(activities.HoldRelease)(s.updateStatus(restartID)) }
		require.True(s, s.Await(2*time.Minute, waits))
		require.Contains(s, s.updateStatus(restartID).WaitsFor, "not all monitors are of release 20 yet")
		time.Sleep(10 * time.Minute)
		require.Empty(s, s.Stopped())
		require.Empty(s, s.Leftovers(), "nobody has to wait for it")
		s.UpgradeMons(20)
		e := s.awaitRollout(restartID, run, 20*time.Minute)
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeDone, e.rollout.Outcome)
		require.Equal(s, map[string]int{"ceph:20.2.4": 6}, s.Images())
		require.Equal(s, 4, e.rollout.Batches, "one alone, the other of its zone, and two zones")
		s.awaitWhole()

		e = s.awaitRollout(restartID, restart("ceph:20.2.4"), 2*time.Minute)
		require.NoError(s, e.err)
		require.Zero(s, e.rollout.Replaced, "they run it")
		e = s.awaitRollout(restartID, restart("ceph:18.2.7"), 2*time.Minute)
		require.ErrorContains(s, e.err, "cannot go back to 18.2.7")
		require.Equal(s, 6, s.Restarts())
		require.Empty(s, s.Asking())
		s.awaitWhole()
	})
}

// TestRestartWithAnImageThatCrashes costs one OSD.
func TestRestartWithAnImageThatCrashes(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		s.Crashes("ceph:18.2.9", true)
		in := workflows.RestartOSDsInput{
			Namespace: sim.Key.Namespace, UpdateDomain: "Zone", Image: "ceph:18.2.9",
			ProgressDeadline: time.Minute,
		}
		run := s.start(restartID, jobs.RestartOSDs.Type, in)
		require.True(s, s.Await(20*time.Minute, func() bool { return s.updateStatus(restartID).Halted != nil }))
		require.Equal(s, map[string]int{sim.FirstImage: 5}, s.Images())
		s.Crashes("ceph:18.2.9", false)
		e := s.awaitRollout(restartID, run, 20*time.Minute)
		require.NoError(s, e.err)
		require.Equal(s, map[string]int{"ceph:18.2.9": 6}, s.Images())
		s.awaitWhole()
	})
}
