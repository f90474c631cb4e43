package workflows_test

import (
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/turns"
)

var everyStep = flag.Int("rollout.every", 180, "in TestEveryStepOfARollout something happens at one step in so many, "+
	"in 5 at most when all is played; 1: at each, which takes long")

// updateMishaps are what happens at a step of a rollout.
var updateMishaps = map[string]mishap{
	"fails":                  {fault: notDone},
	"fails, but is done":     {fault: doneAlso},
	"is done, and times out": {fault: hangs},
	"is done twice":          {fault: twice},
	"cancelled":              {do: func(s *scene, _ string) { s.cancel(updateID) }},
	"aborted":                {do: func(s *scene, _ string) { s.tellRollout(jobs.SignalAbort, nil) }},
	"the keeper is replaced": {do: func(s *scene, _ string) { go s.killKeeper() }},
	"continues as new":       {do: func(s *scene, _ string) { s.continueJob(updateID) }},
	"the worker dies":        {do: workerDies},
}

// TestEveryStepOfARollout plays a rollout again and again, by zones and by single OSDs, and each time something happens
// at another attempt of an activity, until there is none left. Whatever it is, in the end every OSD is what its
// template says, and nothing of ours is left behind.
func TestEveryStepOfARollout(t *testing.T) {
	t.Parallel()
	byOSD := osdsBy("OSD")
	byOSD.OSDsPerNode = 1
	for domain, world := range map[string]sim.Options{"Zone": osdsBy("Zone"), "OSD": byOSD} {
		for name, m := range updateMishaps {
			t.Run(domain+", "+name, func(t *testing.T) {
				t.Parallel()
				at, every := turns.Steps("TestEveryStepOfARollout: "+domain+", "+name, *everyStep, min(*everyStep, 5))
				atEachStep(t, at, every, 600, func(t *testing.T, at int) (came bool) {
					play(t, world, func(s *scene) { came = m.inRollout(s, at) })
					return came
				})
			})
		}
	}
}

// inRollout plays a rollout with the mishap at one step, and tells whether it came to that step.
func (m mishap) inRollout(s *scene, at int) (came bool) {
	s.settleOSDs()
	struck := s.strike(m, at, "")
	s.SetImage("ceph:2")
	if !s.Await(20*time.Minute, func() bool { return s.Images()["ceph:2"] == s.OSDs() && !s.runs(updateID) }) {
		s.Tell("started again") // as the watcher does when something changes next
		s.rollOut()
		s.awaitImage("ceph:2", 20*time.Minute)
	}
	came = struck()
	s.awaitWhole()
	require.Equal(s, sim.CephOSDName, s.CephOSD().Name)
	return came
}
