package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file holds the words in which a script tells what people do, and what it waits for.

// start starts a workflow unless one with this ID runs, and waits until it does.
func (s *scene) start(id, workflowType string, input any) string {
	s.mu.Lock()
	_, runs := s.running[id]
	_, starts := s.waiting[id]
	if !runs && !starts && !s.over {
		s.waiting[id] = childStart{workflowType, input}
		s.env.SignalWorkflow("start", id)
	}
	s.mu.Unlock()
	s.until(time.Minute, func() bool { _, waits := s.waiting[id]; return !waits && s.last[id] != "" || s.over })
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[id]
}

func (s *scene) startKeeper() { s.startKeeperOf(sim.Key) }

func (s *scene) startKeeperOf(cluster storage.ClusterKey) {
	s.start(workflows.KeeperID(cluster), jobs.Keeper.Type, workflows.NewKeeperInput(cluster))
}

// drain starts a drain as a person would.
func (s *scene) drain(in workflows.DrainNodeInput) (run string) {
	s.Tell("a person drains %s", in.Node)
	return s.start(jobs.DrainNode.ID(in.Node), jobs.DrainNode.Type, in)
}

// cancel cancels a workflow, as a person may do in Temporal's UI.
func (s *scene) cancel(id string) {
	s.Tell("%s is cancelled", id)
	s.post(func() { s.env.CancelWorkflowByID(id, "") })
}

// signal sends a signal. One to a workflow that has only just begun comes a moment later, since the test environment
// cannot bear it before.
func (s *scene) signal(id, name string, arg any) { s.signalOr(id, name, arg, func() {}) }

// signalOr is signal, and else does something if the workflow has ended by the time that the signal would come.
func (s *scene) signalOr(id, name string, arg any, otherwise func()) {
	if !s.runs(id) {
		otherwise()
		return
	}
	s.post(func() {
		if !s.begun(id) {
			s.signalOr(id, name, arg, otherwise)
			return
		}
		if s.env.SignalWorkflowByID(id, name, arg) != nil {
			otherwise()
		}
	})
}

// begun tells whether a workflow has run for a first time: the test environment panics when an earlier one is asked.
func (s *scene) begun(id string) (has bool) {
	defer func() { _ = recover() }()
	_, _ = s.env.QueryWorkflowByID(id, "") // there is no such query, which is an answer
	return true
}

// tellDrain sends one of the signals that persons send.
func (s *scene) tellDrain(node, signal string) {
	s.Tell("a person tells the drain of %s: %s", node, signal)
	s.signal(jobs.DrainNode.ID(node), signal, nil)
}

// runs tells whether a workflow runs.
func (s *scene) runs(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.running[id]
	return ok
}

// dead tells whether a workflow was terminated, though the test environment may not have noticed yet.
func (s *scene) dead(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frozen[id+"@"+s.running[id]]
}

// awaitEnd waits for the end of a drain.
func (s *scene) awaitEnd(node, run string, within time.Duration) ended {
	s.Helper()
	key := jobs.DrainNode.ID(node) + "@" + run
	var e ended
	if !s.until(within, func() (ok bool) { e, ok = s.ended[key]; return ok }) {
		s.Errorf("the drain of %s has not ended: %+v", node, s.drainStatus(node))
	}
	return e
}

func (s *scene) drainStatus(node string) (status workflows.DrainStatus) {
	s.query(jobs.DrainNode.ID(node), &status)
	return status
}

func (s *scene) keeperStatus() (status workflows.KeeperStatus) {
	s.query(workflows.KeeperID(sim.Key), &status)
	return status
}

func (s *scene) query(id string, into any) {
	done := make(chan struct{})
	s.post(func() {
		defer close(done)
		defer func() { _ = recover() }() // the test environment panics when the workflow has only just begun
		if v, err := s.env.QueryWorkflowByID(id, workflows.QueryStatus); err == nil {
			_ = v.Get(into)
		}
	})
	<-done
}

// kill terminates a workflow: it does nothing more, and whoever waits for its end hears of it.
func (s *scene) kill(id string) {
	s.Tell("%s is terminated", id)
	s.update(func() {
		run := s.running[id]
		s.frozen[id+"@"+run] = true
		s.ended[id+"@"+run] = ended{err: errors.New("terminated")}
	})
}

// killKeeper terminates the keeper. Another one may be started then.
func (s *scene) killKeeper() { s.killKeeperOf(sim.Key) }

func (s *scene) killKeeperOf(cluster storage.ClusterKey) {
	id := workflows.KeeperID(cluster)
	s.kill(id)
	s.signal(id, terminate, nil)
	require.True(s, s.until(time.Minute, func() bool { _, runs := s.running[id]; return !runs }))
}

// continueKeeper has the keeper continue as new.
func (s *scene) continueKeeper() {
	s.Tell("the keeper continues as new")
	s.mu.Lock()
	before := s.continued
	s.mu.Unlock()
	s.post(func() { s.suggestContinueAsNew(true) })
	time.Sleep(2 * time.Millisecond)
	s.signal(workflows.KeeperID(sim.Key), workflows.SignalStorageChanged, workflows.Hint{Reason: "a test"})
	if !s.until(5*time.Minute, func() bool {
		return s.continued > before ||
			s.running[workflows.KeeperID(sim.Key)] == ""
	}) {
		s.Error("the keeper does not continue as new")
	}
}

// stopFrozen keeps what a terminated workflow began from going on.
func (s *scene) stopFrozen(ctx context.Context) error {
	if !activity.IsActivity(ctx) {
		return nil
	}
	e := activity.GetInfo(ctx).WorkflowExecution
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen[e.ID+"@"+e.RunID] {
		return temporal.NewNonRetryableApplicationError("terminated", "Terminated", nil)
	}
	return nil
}

// awaitBudget waits until the budget says so.
func (s *scene) awaitBudget(want string, within time.Duration) {
	s.Helper()
	if !s.Await(within, func() bool { return s.Budget() == want }) {
		s.Errorf("the budget should say %q, it says %q: %+v", want, s.Budget(), s.keeperStatus().Decision)
	}
}

// awaitPhase waits until a drain is in a phase.
func (s *scene) awaitPhase(node, phase string, within time.Duration) {
	s.Helper()
	if !s.Await(within, func() bool { return s.drainStatus(node).Phase == phase }) {
		s.Errorf("the drain of %s should be %s: %+v", node, phase, s.drainStatus(node))
	}
}

const atRest = "at rest, 5 must stay"

func only(zone string) string { return fmt.Sprintf("only zone [zone-%s] is open", zone) }

// awaitNothingLeft waits until all that lockkeeper changed is changed back.
func (s *scene) awaitNothingLeft(within time.Duration) {
	s.Helper()
	for _, x := range s.sights {
		if !x.Await(within, func() bool { return len(x.Leftovers()) == 0 }) {
			s.Errorf("left behind in %s: %q", x.Key(), x.Leftovers())
		}
	}
}

// onNode does to a node what persons and bad luck do, wherever there is storage on it.
func (s *scene) onNode(do func(w *sim.World)) {
	for _, x := range s.sights {
		do(x.World)
	}
}

// atRest plays until the keeper has seen that all is well.
func (s *scene) settle() {
	s.Helper()
	s.startKeeper()
	s.awaitBudget(atRest, time.Minute)
	s.awaitNothingLeft(time.Minute)
	// The budget's number is written before the pods are marked, and until then nobody may go.
	if !s.Await(time.Minute, func() bool { return s.MayGo("osd.1") == nil }) {
		s.Errorf("at rest osd.1 might go: %v", s.MayGo("osd.1"))
	}
}
