package workflows_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/turns"
)

var everyStep = flag.Int("rollout.every", 40, "in TestEveryStepOfARollout something happens at one step in so many, "+
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
	"the worker dies": {do: func(s *scene, _ string) {
		go func() {
			s.crashWorker(true)
			time.Sleep(5 * time.Second)
			s.crashWorker(false)
		}()
	}},
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
				for more := true; more && !t.Failed(); at += every {
					require.Less(t, at, 600)
					t.Run(fmt.Sprint(at), func(t *testing.T) {
						play(t, world, func(s *scene) { more = m.inRollout(s, at) })
					})
				}
			})
		}
	}
}

// inRollout plays a rollout with the mishap at one step, and tells whether it came to that step.
func (m mishap) inRollout(s *scene, at int) (came bool) {
	s.settleOSDs()
	began := s.attempts
	happens := func(n int) bool { return n == began+at }
	s.update(func() {
		s.fault = func(n int, _ activity.Info) fault {
			if m.fault != noFault && happens(n) {
				return m.fault
			}
			return noFault
		}
		s.onAttempt = func(n int, info activity.Info) {
			if m.do != nil && happens(n) {
				s.Tell("at %s of %s:", info.ActivityType.Name, info.WorkflowExecution.ID)
				m.do(s, "")
			}
		}
	})
	s.SetImage("ceph:2")
	if !s.Await(20*time.Minute, func() bool { return s.Images()["ceph:2"] == s.OSDs() && !s.runs(updateID) }) {
		s.Tell("started again") // as the watcher does when something changes next
		s.rollOut()
		s.awaitImage("ceph:2", 20*time.Minute)
	}
	came = s.attempts > began+at
	s.awaitWhole()
	require.Equal(s, sim.CephOSDName, s.CephOSD().Name)
	return came
}
