package workflows_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/turns"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// A course is one way in which a drain goes from its beginning to its end. It must go on whatever has happened on the
// way, and returns the run of the drain; "" if none was ever started.
type course struct {
	node string
	play func(s *scene, node string) (run string)
	// outcome of a drain to which nothing happened that ends it.
	outcome string
	others  []sim.Options // of the other storage clusters on the nodes
}

var courses = map[string]course{
	"a person's drain": {node: "node-a", outcome: workflows.OutcomeDone, play: func(s *scene, node string) string {
		run := s.drain(drainOf(node))
		s.awaitPhaseOrEnd(node, awaitingNode)
		s.tellDrain(node, jobs.SignalDone)
		return run
	}},
	"a drain from outside": {node: "node-a", outcome: workflows.OutcomeDone, play: func(s *scene, node string) string {
		id := jobs.DrainNode.ID(node)
		select {
		case <-s.KubectlDrain(node):
		case <-time.After(10 * time.Minute):
			s.Error("kubectl drain has not ended")
		}
		s.until(time.Minute, func() bool { return s.last[id] != "" })
		s.awaitPhaseOrEnd(node, awaitingNode)
		s.Reboot(node)
		time.Sleep(5 * time.Second)
		s.PersonCordons(node, false)
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.last[id]
	}},
	"a visit, which is the least that a job can be": {
		node: "node-a", outcome: workflows.OutcomeDone,
		play: func(s *scene, node string) string {
			run := s.start(jobs.DrainNode.ID(node), visitType, workflows.VisitInput{Node: node})
			s.awaitPhaseOrEnd(node, awaitingNode)
			s.tellDrain(node, jobs.SignalDone)
			return run
		},
	},
	"a drain of a node of two storage clusters": {
		node: "node-a", outcome: workflows.OutcomeDone, others: []sim.Options{secondCluster},
		play: func(s *scene, node string) string {
			run := s.drain(drainOf(node))
			s.awaitPhaseOrEnd(node, awaitingNode)
			s.tellDrain(node, jobs.SignalDone)
			return run
		},
	},
	"a node that is deleted": {node: "node-d", outcome: workflows.OutcomeGone, play: func(s *scene, node string) string {
		run := s.drain(drainOf(node))
		s.awaitPhaseOrEnd(node, awaitingNode)
		s.DeleteNode(node)
		return run
	}},
}

func (s *scene) awaitPhaseOrEnd(node, phase string) {
	id := jobs.DrainNode.ID(node)
	s.Await(time.Minute, func() bool { return s.drainStatus(node).Phase == phase || !s.runs(id) || s.dead(id) })
}

// mishap is what happens at a step.
type mishap struct {
	fault fault
	do    func(s *scene, node string)
	// survives: the drain ends as if nothing had happened.
	survives bool
}

var mishaps = map[string]mishap{
	"fails":                  {fault: notDone, survives: true},
	"fails, but is done":     {fault: doneAlso, survives: true},
	"is done, and times out": {fault: hangs, survives: true},
	"is done twice":          {fault: twice, survives: true},
	"aborted":                {do: func(s *scene, node string) { s.tellDrain(node, jobs.SignalAbort) }},
	"cancelled":              {do: func(s *scene, node string) { s.cancel(jobs.DrainNode.ID(node)) }},
	"terminated":             {do: func(s *scene, node string) { s.kill(jobs.DrainNode.ID(node)) }},
	"the keeper is replaced": {do: func(s *scene, _ string) { go s.killKeeper() }, survives: true},
	"continues as new":       {do: func(s *scene, node string) { s.continueJob(jobs.DrainNode.ID(node)) }, survives: true},
	"the worker dies":        {do: workerDies, survives: true},
}

// TestEveryStep plays each course again and again, and each time something happens at another attempt of an activity,
// the drain's or the keeper's, until there is none left: of many steps one, the next commit another. Whatever it is,
// the drain ends, and nothing of ours is left behind.
func TestEveryStep(t *testing.T) {
	t.Parallel()
	for courseName, c := range courses {
		for mishapName, m := range mishaps {
			t.Run(courseName+"/"+mishapName, func(t *testing.T) {
				t.Parallel()
				at, every := turns.Steps("TestEveryStep: "+courseName+", "+mishapName, 48, 1)
				atEachStep(t, at, every, 300, func(t *testing.T, at int) (came bool) {
					play(t, sim.Options{}, func(s *scene) { came = c.with(s, m, at) }, c.others...)
					return came
				})
			})
		}
	}
}

// atEachStep plays a test for the step first and then for one in so many, until it does not come to its step any more.
// There must be fewer than most.
func atEachStep(t *testing.T, first, every, most int, test func(t *testing.T, at int) (came bool)) {
	t.Helper()
	for at, came := first, true; came && !t.Failed(); at += every {
		require.Less(t, at, most)
		t.Run(fmt.Sprint(at), func(t *testing.T) { came = test(t, at) })
	}
}

// strike has the mishap happen at one attempt of an activity, after so many others from now on, and returns what tells
// whether it came to that one.
func (s *scene) strike(m mishap, after int, node string) (came func() bool) {
	at := s.attempts + after
	happens := func(n int, info activity.Info) bool { return n == at && info.WorkflowExecution.ID != "" }
	s.update(func() {
		s.fault = func(n int, info activity.Info) fault {
			if m.fault != noFault && happens(n, info) {
				return m.fault
			}
			return noFault
		}
		s.onAttempt = func(n int, info activity.Info) {
			if m.do != nil && happens(n, info) {
				s.Tell("at %s of %s:", info.ActivityType.Name, info.WorkflowExecution.ID)
				m.do(s, node)
			}
		}
	})
	return func() bool { return s.attempts > at }
}

// workerDies has the worker die, and start again.
func workerDies(s *scene, _ string) {
	go func() {
		s.crashWorker(true)
		time.Sleep(5 * time.Second)
		s.crashWorker(false)
	}()
}

// with plays the course with the mishap at one step, and tells whether it came to that step.
func (c course) with(s *scene, m mishap, at int) (came bool) {
	s.settleAll()
	struck := s.strike(m, at, c.node)
	if run := c.play(s, c.node); run != "" {
		e := s.awaitEnd(c.node, run, time.Hour)
		if m.survives {
			require.NoError(s, e.err)
			require.Equal(s, c.outcome, e.result.Outcome)
		}
	}
	s.onNode(func(w *sim.World) { w.RestoreNode(c.node) })
	time.Sleep(10 * time.Second)
	// After a drain that was terminated nobody is left who knows of the cordon.
	s.onNode(func(w *sim.World) { w.PersonCordons(c.node, false) })
	s.awaitNothingLeft(5 * time.Minute)
	for _, x := range s.sights {
		require.True(s, x.Await(time.Minute, func() bool { return len(x.Whole()) == 0 }), "%v", x.Whole())
	}
	return struck()
}
