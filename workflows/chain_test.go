package workflows_test

import (
	"errors"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
)

// This file is how jobs continue as new in a scene.

// chained runs a job until it ends. When it continues as new it goes on here, as the keeper does.
func chained[I, O any](s *scene, w func(workflow.Context, I) (O, error)) func(workflow.Context, I) (O, error) {
	return func(ctx workflow.Context, in I) (O, error) {
		info := workflow.GetInfo(ctx)
		id := info.WorkflowExecution.ID
		info.FirstRunID = info.WorkflowExecution.RunID
		s.update(func() { s.jobs[id] = info })
		for {
			runCtx, end := workflow.WithCancel(ctx)
			var result O
			var err error
			done := false
			workflow.Go(runCtx, func(ctx workflow.Context) {
				result, err = w(ctx, in)
				done = true
			})
			// A job that is cancelled cleans up before it ends.
			waitCtx, stopWaiting := workflow.NewDisconnectedContext(ctx)
			awaitErr := workflow.Await(waitCtx, func() bool { return done })
			stopWaiting()
			end()
			var next *workflow.ContinueAsNewError
			switch {
			case awaitErr != nil:
				return result, awaitErr
			case !errors.As(err, &next):
				return result, err
			}
			var again I
			if err := converter.GetDefaultDataConverter().FromPayloads(next.Input, &again); err != nil {
				return result, err
			}
			in = again
			for _, name := range workflow.GetUnhandledSignalNames(ctx) {
				if name != wakeSignal {
					s.Errorf("%s continues as new, and loses the signal %s", id, name)
				}
			}
			s.suggestTo(info, false)
			s.update(func() { s.continued++; s.continues[id]++ })
		}
	}
}

// wakeSignal is one that no job takes: it only makes its history longer, as any event does.
const wakeSignal = "test-wake"

// continueJob has a job continue as new as soon as it can.
func (s *scene) continueJob(id string) {
	s.post(func() {
		s.mu.Lock()
		info := s.jobs[id]
		s.mu.Unlock()
		if info != nil && s.runs(id) {
			s.Tell("%s is to continue as new", id)
			s.suggestTo(info, true)
			_ = s.env.SignalWorkflowByID(id, wakeSignal, nil)
		}
	})
}
