package workflows

import (
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"
)

// This file keeps histories short. A server ends a workflow whose history has 51,200 events or 50 MiB, and nobody hears
// of it before. So a job that waits leaves its wait when its history has become long, and goes on waiting in a new run:
// with the same claim, since the keeper knows a job by the first run of its chain; with every signal taken in; and
// since the same time.

// A server suggests to continue as new at 4,096 events or 4 MiB, unless it is configured otherwise or is too old to
// suggest anything. A job does not rely on that.
const (
	mostEvents = 3000
	mostBytes  = 3 << 20
)

// full tells whether the history is so long that the job should go on in a new one.
func full(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	return info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() >= mostEvents ||
		info.GetCurrentHistorySize() >= mostBytes
}

// Wait is the wait in which a run ended that continued as new.
type Wait struct {
	Phase string    `json:"phase,omitempty"`
	What  string    `json:"what,omitempty"`
	Since time.Time `json:"since,omitzero"`
}

// is tells whether a wait goes on with this one. What says more about a wait begins with it.
func (w Wait) is(phase, what string) bool {
	return w.Phase == phase && !w.Since.IsZero() && strings.HasPrefix(w.What, what)
}

// wait is the present one.
func (j *job) wait() Wait { return Wait{Phase: j.Phase, What: j.WaitsFor, Since: j.Since} }

// letSignalsIn lets everybody who serves a signal serve those that have come already: they wait for their turn behind
// us, and would be lost with this run.
func letSignalsIn(ctx workflow.Context) error {
	served := false
	workflow.Go(ctx, func(workflow.Context) { served = true })
	if err := workflow.Await(ctx, func() bool { return served }); err != nil {
		return err
	}
	return ctx.Err()
}
