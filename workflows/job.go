package workflows

import (
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
)

// job is what all jobs have in common: phases, a status, and the signals pause, resume, abort and done.
type job struct {
	JobStatus
	phases []string
	done   workflow.Channel // a person says that the work on the node is finished
	// onPause stops what is under way so that it can be taken up again; nil when there is nothing to stop.
	onPause workflow.CancelFunc
	goesOn  Wait // the wait in which the run before ended
}

func newJob(ctx workflow.Context, phases []string) *job {
	now := workflow.Now(ctx)
	return &job{
		JobStatus: JobStatus{Started: now, Since: now, Steps: len(phases)}, phases: phases,
		done: workflow.NewBufferedChannel(ctx, 1),
	}
}

// listen serves the job's signals for as long as the workflow runs. abort cancels the run; its clean-up still happens.
func (j *job) listen(ctx workflow.Context, cancelRun workflow.CancelFunc) {
	handle := map[string]func(){
		jobs.SignalPause: func() {
			j.Paused = true
			if j.onPause != nil {
				j.onPause()
			}
		},
		jobs.SignalResume: func() { j.Paused = false },
		jobs.SignalAbort: func() {
			j.Aborted = true
			cancelRun()
		},
		jobs.SignalDone: func() { j.done.SendAsync(struct{}{}) },
	}
	for _, name := range sortedKeys(handle) {
		workflow.Go(ctx, func(ctx workflow.Context) {
			for c := workflow.GetSignalChannel(ctx, name); receive(ctx, c, nil); {
				handle[name]()
			}
		})
	}
}

// receive waits for a signal until the context ends: a run that is over must not take what is meant for the next one.
func receive(ctx workflow.Context, c workflow.ReceiveChannel, into any) (came bool) {
	workflow.NewSelector(ctx).
		AddReceive(c, func(c workflow.ReceiveChannel, _ bool) { came = c.Receive(ctx, into) }).
		AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {}).
		Select(ctx)
	return came
}

// enter begins a phase.
func (j *job) enter(ctx workflow.Context, phase string) {
	if phase != j.goesOn.Phase && phase != PhaseSurvey { // every run of a rollout begins with a survey
		j.goesOn = Wait{}
	}
	j.Phase, j.Step = phase, slices.Index(j.phases, phase)+1
	j.waitFor(ctx, "")
}

// waitFor says what the job waits for now. Only a new wait begins a new Since.
func (j *job) waitFor(ctx workflow.Context, what string) {
	if j.WaitsFor == what && what != "" {
		return
	}
	j.WaitsFor, j.Since = what, workflow.Now(ctx)
	if what != "" && j.goesOn.is(j.Phase, what) {
		j.Since = j.goesOn.Since
	}
	workflow.SetCurrentDetails(ctx, j.details())
}

// elaborate says more about the present wait, which began when it began.
func (j *job) elaborate(ctx workflow.Context, what string, since time.Time) {
	if j.WaitsFor == what && j.Since.Equal(since) {
		return
	}
	j.WaitsFor, j.Since = what, since
	workflow.SetCurrentDetails(ctx, j.details())
}

func (j *job) details() string {
	s := "**" + j.Phase + "**"
	if j.WaitsFor != "" {
		s += "  \nwaits for " + j.WaitsFor + " since " + j.Since.Format("15:04:05")
	}
	return s
}

const pausedWait = "the signal `resume`: somebody paused this job"

func applicationErrorType(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Type()
	}
	return ""
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
