package workflows_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/internal/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file is what a scene knows of rollouts.

var (
	updateID  = workflows.UpdateOSDsID(sim.Key.Namespace, sim.CephOSDName)
	restartID = workflows.RestartOSDsID(sim.Key.Namespace)
)

// rolling runs one of the two kinds of rollouts until it ends. When it continues as new it goes on here, as the keeper does.
func rolling[I any](s *scene, w func(workflow.Context, I) (workflows.UpdateOSDsResult, error)) func(workflow.Context, I) (workflows.UpdateOSDsResult, error) {
	return func(ctx workflow.Context, in I) (workflows.UpdateOSDsResult, error) {
		info := workflow.GetInfo(ctx)
		info.FirstRunID = info.WorkflowExecution.RunID
		s.update(func() { s.rollouts = info })
		for {
			runCtx, end := workflow.WithCancel(ctx)
			var result workflows.UpdateOSDsResult
			var err error
			done := false
			workflow.Go(runCtx, func(ctx workflow.Context) {
				result, err = w(ctx, in)
				done = true
			})
			// A rollout that is cancelled cleans up before it ends.
			waitCtx, stopWaiting := workflow.NewDisconnectedContext(ctx)
			awaitErr := workflow.Await(waitCtx, func() bool { return done })
			stopWaiting()
			end()
			var next *workflow.ContinueAsNewError
			if awaitErr != nil || !errors.As(err, &next) {
				return result, errors.Join(awaitErr, err)
			}
			var again I
			if err := converter.GetDefaultDataConverter().FromPayloads(next.Input, &again); err != nil {
				return result, err
			}
			in = again
			s.suggestTo(info, false)
			s.update(func() { s.continued++ })
		}
	}
}

// lookAtOSDs is the watcher of the CephOSD: it starts the rollout, or tells it, whenever its spec, its pods or its nodes are
// not what they were.
func (s *scene) lookAtOSDs() {
	now := s.OSDsSeen()
	s.mu.Lock()
	had := s.osds
	s.osds = now
	s.mu.Unlock()
	if now == had || now == "" {
		return
	}
	s.rollOut()
	s.signal(updateID, workflows.SignalOSDsChanged, nil)
}

// rollOut starts the rollout of the CephOSD unless it is under way.
func (s *scene) rollOut() (run string) {
	return s.start(updateID, workflows.UpdateOSDsType, workflows.UpdateOSDsInput{CephOSD: sim.Key.Namespace + "/" + sim.CephOSDName})
}

func (s *scene) updateStatus(id string) (status workflows.UpdateStatus) {
	if s.runs(id) {
		s.query(id, &status)
	}
	return status
}

// tellRollout sends one of the signals that persons send.
func (s *scene) tellRollout(signal string, arg any) {
	s.Tell("a person tells the rollout: %s %v", signal, arg)
	s.signal(updateID, signal, arg)
}

// awaitImage waits until every OSD runs in an image and the rollout has ended.
func (s *scene) awaitImage(image string, within time.Duration) {
	s.Helper()
	if !s.Await(within, func() bool { return s.Images()[image] == s.OSDs() && !s.runs(updateID) }) {
		s.Errorf("all OSDs should run %s: %v, %+v", image, s.Images(), s.updateStatus(updateID))
	}
}

// awaitUpdate waits until something is true of the rollout's status.
func (s *scene) awaitUpdate(what string, within time.Duration, is func(workflows.UpdateStatus) bool) workflows.UpdateStatus {
	s.Helper()
	var status workflows.UpdateStatus
	if !s.Await(within, func() bool { status = s.updateStatus(updateID); return is(status) }) {
		s.Errorf("the rollout should be %s: %+v", what, status)
	}
	return status
}

// settleOSDs plays until the keeper and the rollout have seen that all is well.
func (s *scene) settleOSDs() {
	s.Helper()
	s.startKeeper()
	s.awaitBudget(fmt.Sprintf("at rest, %d must stay", s.OSDs()-1), time.Minute)
	s.lookAtOSDs()
	s.awaitImage(sim.FirstImage, 2*time.Minute)
	s.awaitNothingLeft(time.Minute)
}

// awaitWhole waits until everything is as it should be, and nothing of ours is left.
func (s *scene) awaitWhole() {
	s.Helper()
	wrong := func() []string { return slices.Concat(s.Whole(), s.Leftovers(), s.NooutOSDs()) }
	if !s.Await(5*time.Minute, func() bool { return len(wrong()) == 0 }) {
		s.Errorf("left: %q", wrong())
	}
}

// awaitRollout waits for the end of one run of a rollout.
func (s *scene) awaitRollout(id, run string, within time.Duration) (e ended) {
	s.Helper()
	if !s.until(within, func() (ok bool) { e, ok = s.ended[id+"@"+run]; return ok }) {
		s.Errorf("%s has not ended: %+v", id, s.updateStatus(id))
	}
	return e
}
