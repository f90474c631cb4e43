package workflows_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/turns"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// osdsBy is a world of twelve OSDs, two on each node, of a CephOSD with this update domain.
func osdsBy(domain string, more ...map[string]any) sim.Options {
	spec := map[string]any{"updateDomain": domain, "progressDeadline": "1m"}
	for _, m := range more {
		for k, v := range m {
			spec[k] = v
		}
	}
	return sim.Options{OSDsPerNode: 2, CephOSD: spec}
}

func TestUpdateOSDs(t *testing.T) {
	t.Parallel()
	for domain, batches := range map[string]int{"OSD": 12, "Host": 6, "Zone": 3} {
		t.Run(domain, func(t *testing.T) {
			play(t, osdsBy(domain), func(s *scene) {
				s.settleOSDs()
				began := time.Now()
				s.SetImage("ceph:2")
				s.awaitUpdate("under way", time.Minute, func(u workflows.UpdateStatus) bool { return u.Batch != nil })
				s.mu.Lock()
				run := s.last[updateID]
				s.mu.Unlock()
				s.awaitImage("ceph:2", 10*time.Minute)
				s.Tell("it took %s", time.Since(began))
				e := s.ended[updateID+"@"+run]
				require.NoError(s, e.err)
				require.Equal(s, workflows.OutcomeDone, e.rollout.Outcome)
				require.Equal(s, 12, e.rollout.Replaced)
				require.Equal(s, batches, e.rollout.Batches)
				status := s.CephOSD().Status
				require.Equal(s, "12/12", status.Progress)
				require.Equal(s, "UpToDate", status.Reason)
				require.Nil(s, status.Halted)
				s.awaitWhole()
			})
		})
	}
}

func TestRestartOSDs(t *testing.T) {
	t.Parallel()
	for domain, batches := range map[string]int{"OSD": 12, "Host": 6, "Zone": 3} {
		t.Run(domain, func(t *testing.T) {
			play(t, sim.Options{OSDsPerNode: 2}, func(s *scene) {
				s.startKeeper()
				s.awaitBudget("at rest, 11 must stay", time.Minute)
				in := workflows.RestartOSDsInput{Namespace: sim.Key.Namespace, UpdateDomain: domain, Reason: "new kernel module"}
				run := s.start(restartID, jobs.RestartOSDs.Type, in)
				e := s.awaitRollout(restartID, run, 10*time.Minute)
				require.NoError(s, e.err)
				require.Equal(s, workflows.OutcomeDone, e.rollout.Outcome)
				require.Equal(s, 12, e.rollout.Replaced)
				require.Equal(s, batches, e.rollout.Batches)
				require.Equal(s, 12, s.Restarts())
				s.awaitWhole()
			})
		})
	}
}

func TestCanary(t *testing.T) {
	turns.Await(t, t.Name(), 8*time.Second)
	t.Parallel()
	play(t, osdsBy("Zone", map[string]any{"canary": map[string]any{"soak": "5m", "approval": true}}), func(s *scene) {
		s.settleOSDs()
		s.SetImage("ceph:2")
		s.awaitUpdate("soaking", time.Minute, judging)
		began := time.Now()
		require.Equal(s, map[string]int{sim.FirstImage: 11, "ceph:2": 1}, s.Images())
		s.tellRollout(jobs.SignalApprove, nil)
		time.Sleep(4 * time.Minute)
		require.Equal(s, 1, s.Images()["ceph:2"], "it has to soak, whoever approves")
		require.Empty(s, s.Leftovers(), "nobody has to wait for it")
		s.awaitImage("ceph:2", 10*time.Minute)
		require.Greater(s, time.Since(began), 5*time.Minute)

		s.SetImage("ceph:3")
		s.awaitUpdate("waiting for approval", 10*time.Minute, func(u workflows.UpdateStatus) bool {
			return judging(u) && u.WaitsFor != "" && time.Since(u.Canary.Whole) > 5*time.Minute
		})
		time.Sleep(3 * time.Hour)
		require.Equal(s, 1, s.Images()["ceph:3"], "an approval is of one template")
		s.tellRollout(jobs.SignalApprove, nil)
		s.awaitImage("ceph:3", 10*time.Minute)
		s.awaitWhole()
	})
}

func judging(u workflows.UpdateStatus) bool { return u.Phase == workflows.PhaseJudge }

func TestPauseAndSkip(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("Host"), func(s *scene) {
		s.settleOSDs()
		s.SetImage("ceph:2")
		s.awaitUpdate("at work", time.Minute, func(u workflows.UpdateStatus) bool { return u.Batch != nil })
		s.tellRollout(jobs.SignalPause, nil)
		s.tellRollout(jobs.SignalSkip, "osd.11")
		time.Sleep(10 * time.Minute)
		require.Equal(s, 2, s.Images()["ceph:2"], "the batch that was under way is brought to its end")
		require.Empty(s, s.Leftovers(), "nobody has to wait for one that is paused")
		s.mu.Lock()
		run := s.last[updateID]
		s.mu.Unlock()
		s.tellRollout(jobs.SignalResume, nil)
		e := s.awaitRollout(updateID, run, 10*time.Minute)
		require.Equal(s, []string{"osd.11"}, e.rollout.Skipped)
		require.Equal(s, sim.FirstImage, s.Image("osd.11"))
		require.Equal(s, 11, s.Images()["ceph:2"])
		s.awaitWhole()
	})
}

func TestAbortedRollout(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("Host"), func(s *scene) {
		s.settleOSDs()
		s.SetImage("ceph:2")
		s.awaitUpdate("at work", time.Minute, func(u workflows.UpdateStatus) bool { return u.Phase == workflows.PhaseArrive })
		s.mu.Lock()
		run := s.last[updateID]
		s.mu.Unlock()
		s.blindfold(true) // it would start the next one
		s.tellRollout(jobs.SignalAbort, nil)
		e := s.awaitRollout(updateID, run, time.Minute)
		require.NoError(s, e.err)
		require.Equal(s, workflows.OutcomeAborted, e.rollout.Outcome)
		s.awaitWhole()
		require.Equal(s, 2, s.Images()["ceph:2"], "what runs stays")
		s.blindfold(false)
		s.rollOut()
		s.awaitImage("ceph:2", 10*time.Minute)
	})
}

// TestHalt is a template that makes OSDs crash: one batch is lost, and nothing further goes down until a person has
// mended it in one of three ways.
func TestHalt(t *testing.T) {
	turns.Await(t, t.Name(), 8*time.Second)
	t.Parallel()
	for name, c := range map[string]struct {
		mend  func(*scene)
		image string
	}{
		"the template is mended": {image: "ceph:3", mend: func(s *scene) {
			before := s.Stopped()
			s.SetImage("ceph:3")
			s.awaitUpdate("replacing", time.Minute,
				func(u workflows.UpdateStatus) bool { return u.Phase == workflows.PhaseArrive })
			require.Equal(s, map[string]int{sim.FirstImage: 10}, only1(s.Images()), "broken first")
			require.Subset(s, before, s.Stopped())
		}},
		"the cause is mended":        {image: "ceph:2", mend: func(s *scene) { s.Crashes("ceph:2", false) }},
		"the template is taken back": {image: sim.FirstImage, mend: func(s *scene) { s.SetImage(sim.FirstImage) }},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, osdsBy("Host"), func(s *scene) {
				s.settleOSDs()
				s.Crashes("ceph:2", true)
				s.SetImage("ceph:2")
				u := s.awaitUpdate("halted", 5*time.Minute, func(u workflows.UpdateStatus) bool { return u.Halted != nil })
				require.NotNil(s, u.Halted)
				require.Contains(s, u.Halted.Reason, "osd.0")
				time.Sleep(20 * time.Minute)
				require.Equal(s, []string{"osd.0", "osd.1"}, s.Stopped(), "nothing further goes down")
				status := s.CephOSD().Status
				require.Equal(s, "Halted", status.Reason)
				require.NotNil(s, status.Halted)
				c.mend(s)
				s.awaitImage(c.image, 10*time.Minute)
				require.Nil(s, s.CephOSD().Status.Halted)
				s.awaitWhole()
			})
		})
	}
}

// TestHaltNamesThoseThatAreLate, and not the rest of their batch, which serves; nor does it go on to name those alone
// that were late first.
func TestHaltNamesThoseThatAreLate(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("Host"), func(s *scene) {
		s.settleOSDs()
		s.SetImage("ceph:2")
		s.awaitUpdate("awaiting", 5*time.Minute,
			func(u workflows.UpdateStatus) bool { return u.Phase == workflows.PhaseArrive })
		s.BreakDisk(0)
		says := func(reason string) func(workflows.UpdateStatus) bool {
			return func(u workflows.UpdateStatus) bool {
				return u.Halted != nil && strings.HasPrefix(u.Halted.Reason, reason)
			}
		}
		u := s.awaitUpdate("halted", 20*time.Minute, says(""))
		require.Regexp(s, `^osd\.0 to serve took longer than `, u.Halted.Reason)
		s.BreakDisk(1)
		again := s.awaitUpdate("halted for both", 20*time.Minute, says("osd.0, osd.1 to serve took longer than "))
		require.Equal(s, u.Halted.Since, again.Halted.Since)
		s.tellRollout(jobs.SignalAbort, nil)
	})
}

// only1 leaves out the images of the batch in work.
func only1(images map[string]int) map[string]int {
	return map[string]int{sim.FirstImage: images[sim.FirstImage]}
}

// TestHaltIsOverridden: a person says of one OSD that is down not to wait for it.
func TestHaltIsOverridden(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("OSD"), func(s *scene) {
		s.settleOSDs()
		s.BreakDisk(0)
		time.Sleep(2 * time.Minute) // its data is whole elsewhere
		s.SetImage("ceph:2")
		s.awaitUpdate("halted", 5*time.Minute, func(u workflows.UpdateStatus) bool {
			return s.Image("osd.0") == "ceph:2" &&
				u.Halted != nil
		})
		require.Equal(s, []string{"osd.0"}, s.Stopped())
		require.Equal(s, 0, s.Images()["ceph:2"])
		s.Annotate("osd.0", podspec.StateAnnotation, "")
		require.True(s, s.Await(10*time.Minute, func() bool { return s.Images()["ceph:2"] == 11 && !s.runs(updateID) }),
			"%v %+v", s.Images(), s.updateStatus(updateID))
		require.Equal(s, []string{"osd.0"}, s.Stopped())
		require.True(s, s.Clean())
		s.awaitNothingLeft(time.Minute)
	})
}

func TestTemplateChangesInMidRollout(t *testing.T) {
	t.Parallel()
	play(t, osdsBy("Host"), func(s *scene) {
		s.settleOSDs()
		s.SetImage("ceph:2")
		require.True(s, s.Await(5*time.Minute,
			func() bool { return s.Images()["ceph:2"] == 5 || len(s.Stopped()) > 0 && s.Images()["ceph:2"] == 4 }))
		s.SetImage("ceph:3")
		s.awaitImage("ceph:3", 10*time.Minute)
		s.awaitWhole()
	})
}

// TestDrainInMidRollout: the lease decides who goes first, and both end.
func TestDrainInMidRollout(t *testing.T) {
	t.Parallel()
	for name, node := range map[string]string{"same zone": "node-d", "another zone": "node-b", "the very node": "node-a"} {
		for domain := range map[string]bool{"OSD": true, "Zone": true} {
			t.Run(domain+"/"+name, func(t *testing.T) {
				play(t, osdsBy(domain), func(s *scene) {
					s.settleOSDs()
					s.SetImage("ceph:2")
					s.awaitUpdate("at work", time.Minute,
						func(u workflows.UpdateStatus) bool { return u.Phase == workflows.PhaseArrive })
					drained := s.KubectlDrain(node)
					select {
					case err := <-drained:
						require.NoError(s, err)
					case <-time.After(10 * time.Minute):
						s.Errorf("kubectl drain does not end: %+v", s.updateStatus(updateID))
					}
					s.Reboot(node)
					time.Sleep(5 * time.Second)
					s.PersonCordons(node, false)
					s.awaitImage("ceph:2", 20*time.Minute)
					s.awaitWhole()
				})
			})
		}
	}
}
