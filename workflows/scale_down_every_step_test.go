package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/test/turns"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// removalMishaps happen to the scale-down of the node a.
var removalMishaps = map[string]mishap{
	"fails":                  {fault: notDone, survives: true},
	"fails, but is done":     {fault: doneAlso, survives: true},
	"is done, and times out": {fault: hangs, survives: true},
	"is done twice":          {fault: twice, survives: true},
	"aborted":                {do: func(s *scene, node string) { s.tellScaleDown(node, jobs.SignalAbort) }},
	"cancelled":              {do: func(s *scene, node string) { s.cancel(jobs.ScaleDownNode.ID(node)) }},
	"terminated":             {do: func(s *scene, node string) { s.kill(jobs.ScaleDownNode.ID(node)) }},
	"paused for a while": {do: func(s *scene, node string) {
		s.tellScaleDown(node, jobs.SignalPause)
		time.AfterFunc(20*time.Second, func() { s.tellScaleDown(node, jobs.SignalResume) })
	}, survives: true},
	"the keeper is replaced": {do: func(s *scene, _ string) {
		go func() {
			s.killKeeper()
			s.startKeeper()
		}()
	}, survives: true},
	"continues as new": {
		do: func(s *scene, node string) { s.continueJob(jobs.ScaleDownNode.ID(node)) }, survives: true,
	},
	"the worker dies": {do: workerDies, survives: true},
}

// TestEveryStepOfAScaleDown removes two nodes that share a volume again and again, and each time something happens at
// another attempt of an activity. Whatever it is, each job ends, the other node is removed, no volume loses its last
// copy, and nothing stays open.
func TestEveryStepOfAScaleDown(t *testing.T) {
	t.Parallel()
	for name, m := range removalMishaps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, every := turns.Steps("TestEveryStepOfAScaleDown: "+name, 16, 1)
			atEachStep(t, at, every, 300, func(t *testing.T, at int) (came bool) {
				toy := threefold()
				playToy(t, toy, func(s *scene) { came = removeTwo(s, toy, m, at) })
				return came
			})
		})
	}
}

// removeTwo removes a and b with a mishap at one step, and tells whether it came to that step.
func removeTwo(s *scene, toy *toyStore, m mishap, at int) (came bool) {
	s.awaitMode(budget.ModeDefault)
	struck := s.strike(m, at, "a")
	runs := map[string]string{}
	for _, node := range []string{"a", "b"} {
		toy.announces(node, leaving.Signs{Disrupted: true})
		runs[node] = s.scaleDown(node)
	}
	time.Sleep(10 * time.Second) // one of them is open, the other one waits
	toy.autoscales("a")
	toy.autoscales("b")
	b := s.awaitRemoval("b", runs["b"], 30*time.Minute)
	require.NoError(s, b.err)
	require.Equal(s, workflows.OutcomeGone, b.removal.Outcome)
	if m.survives {
		a := s.awaitRemoval("a", runs["a"], 30*time.Minute)
		require.NoError(s, a.err)
		require.Equal(s, workflows.OutcomeGone, a.removal.Outcome)
	}
	toy.happens(func() {
		if n := toy.nodes["a"]; n != nil {
			n.signs = leaving.Signs{} // whoever wanted to remove it gives up
		}
	})
	s.awaitRemoval("a", runs["a"], 30*time.Minute)
	s.awaitMode(budget.ModeDefault)
	require.True(s, s.Await(5*time.Minute, func() bool {
		l := s.keeperStatus().Lease
		return len(l.Holders)+len(l.Queue) == 0
	}), "%+v", s.keeperStatus().Lease)
	return struck()
}
