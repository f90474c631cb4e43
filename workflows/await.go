package workflows

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// This file is how jobs wait, and keeps histories short. A server ends a workflow whose history has 51,200 events or
// 50 MiB, and nobody hears of it before. So every wait of a job ends when the history is full, and the job goes on
// waiting in a new run: with the same claims, since a keeper knows a job by the first run of its chain; with every
// signal taken in; and since the same time.

// A server suggests to continue as new at 4,096 events or 4 MiB, unless it is configured otherwise or is too old to
// suggest anything. A job does not rely on that.
const (
	mostEvents = 3000
	mostBytes  = 3 << 20
)

// errFull ends a wait when the history is full. Steps return it unchanged, and runJob continues as new.
var errFull = errors.New("the history is full")

// full tells whether the history is so long that the job should go on in a new one.
func full(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	return info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() >= mostEvents ||
		info.GetCurrentHistorySize() >= mostBytes
}

func (j *job) full(ctx workflow.Context) bool { return !j.ending && full(ctx) }

// await waits until cond holds. It returns errFull if the history is full before.
func (j *job) await(ctx workflow.Context, cond func() bool) error {
	held := false
	err := workflow.Await(ctx, func() bool {
		held = cond()
		return held || j.full(ctx)
	})
	if err == nil && !held {
		return errFull
	}
	return err
}

// awaitAtMost is await for a limited time, and tells whether cond holds.
func (j *job) awaitAtMost(
	ctx workflow.Context, most time.Duration, summary string, cond func() bool,
) (held bool, err error) {
	over, err := awaitAtMost(ctx, most, summary, func() bool {
		held = cond()
		return held || j.full(ctx)
	})
	if over && !held {
		return false, errFull
	}
	return held, err
}

// awaitAtMost waits until cond holds, at most for the given time, and tells whether it does. Unlike the SDK's own it
// leaves no timer behind, which would fire into the history long after anybody wanted to know.
func awaitAtMost(ctx workflow.Context, most time.Duration, summary string, cond func() bool) (bool, error) {
	if cond() {
		return true, nil
	}
	timerCtx, stop := workflow.WithCancel(ctx)
	defer stop()
	late := workflow.NewTimerWithOptions(timerCtx, max(most, time.Millisecond), workflow.TimerOptions{Summary: summary})
	held := false
	err := workflow.Await(ctx, func() bool {
		held = cond()
		return held || late.IsReady()
	})
	return held, err
}

// perform is call for a job. If the history is full before the activity has ended, the activity is cancelled. One that
// changes something has options with WaitForCancellation: then it has ended before the next run begins.
func perform[I, O any](
	ctx workflow.Context, j *job, activity func(context.Context, I) (O, error), in I,
) (out O, err error) {
	if j.full(ctx) {
		return out, errFull
	}
	ctx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	f := begin(ctx, activity, in)
	isFull := errors.Is(j.await(ctx, f.IsReady), errFull)
	if isFull {
		cancel()
	}
	if err = f.Get(ctx, &out); isFull && err != nil && !final(err) {
		err = errFull
	}
	return out, err
}

// final tells whether an activity that failed so is not tried again. An activity that is cancelled ends with the error
// of its last attempt, even if it would otherwise have been tried again.
func final(err error) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.NonRetryable()
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

// goesOnIn tells whether this run began in the middle of a phase, and has not left it yet.
func (j *job) goesOnIn(phase string) bool { return j.goesOn.Phase == phase }

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
