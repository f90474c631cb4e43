package workflows

import (
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
)

// This file is what all jobs have in common. How they wait is in await.go, how they hold the lease in claimant.go.

// job is the common part of a job: phases, a status, claims, and the signals pause, resume, abort and done.
type job struct {
	JobStatus
	phases []string
	done   workflow.Channel // a person says that the work on the node is finished
	// onPause stops what is under way so that it can be taken up again; nil when there is nothing to stop.
	onPause workflow.CancelFunc
	goesOn  Wait // the wait in which the run before ended
	// claims has one entry for each storage cluster whose lease the job may hold. Most jobs have one.
	claims  []*claimant
	notices workflow.ReceiveChannel // what keepers say of the claims
	// changed: what the job saw last is out of date. A job that ends while this is set begins again.
	changed bool
	// ending: the job cleans up, which a full history does not interrupt.
	ending bool
	// warning is what people have to know beside what the job waits for.
	warning string
}

// Outcomes that runJob sets.
const (
	OutcomeAborted = "Aborted" // by a person; what we changed is changed back
	OutcomeFailed  = "Failed"  // with an error
)

// JobState is the part of a job's state that runJob hands on to the next run.
type JobState struct {
	Started time.Time    `json:"started"`
	Wait    Wait         `json:"wait,omitzero"` // in which the run before ended, and where this one goes on
	Paused  bool         `json:"paused,omitempty"`
	Done    bool         `json:"done,omitempty"`   // the signal came, and nobody has waited for it yet
	Lease   ClaimState   `json:"lease,omitzero"`   // the first claim
	Others  []ClaimState `json:"others,omitempty"` // claims of other storage clusters
}

// runbook is what each job has of its own.
type runbook interface {
	// validate completes the input, or says what is wrong with it. It does nothing else.
	validate(ctx workflow.Context) error
	// run does the job's work. When it returns errFull, the next run calls it again with the same state, so every step of
	// it looks before it acts.
	run(ctx workflow.Context) error
	// cleanUp undoes what is left to undo. It is called whatever the reason for ending, also if run has changed nothing,
	// and its context is not cancelled by an abort. Leases that are left are given back after it.
	cleanUp(ctx workflow.Context)
	// again is the error that continues as new with the job's state, of which s is the common part.
	again(ctx workflow.Context, s JobState) error
	status() any      // answers the query "status"
	outcome() *string // in the job's result
}

// newJob is a job that begins, if s is zero, or goes on.
func newJob(ctx workflow.Context, phases []string, s JobState) *job {
	now := workflow.Now(ctx)
	if s.Started.IsZero() {
		s.Started = now
	}
	j := &job{
		JobStatus: JobStatus{Started: s.Started, Since: now, Steps: len(phases), Paused: s.Paused}, phases: phases,
		done: workflow.NewBufferedChannel(ctx, 1), goesOn: s.Wait, notices: workflow.GetSignalChannel(ctx, SignalLease),
	}
	if s.Done {
		j.done.SendAsync(struct{}{})
	}
	for _, c := range slices.Concat([]ClaimState{s.Lease}, s.Others) {
		j.claims = append(j.claims, &claimant{ClaimState: c, job: j})
	}
	return j
}

// runJob runs a job until it ends, or until its history is full.
func runJob(ctx workflow.Context, j *job, b runbook) error {
	if err := b.validate(ctx); err != nil {
		return err
	}
	if err := workflow.SetQueryHandler(ctx, QueryStatus, func() (any, error) { return b.status(), nil }); err != nil {
		return err
	}
	runCtx, cancel := workflow.WithCancel(ctx)
	j.serveSignals(ctx, cancel)
	cleanCtx, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	for {
		err := b.run(runCtx)
		if errors.Is(err, errFull) {
			wait := j.wait()
			if err = letSignalsIn(runCtx); err == nil { // or one of them is an abort
				err = workflow.Await(runCtx, func() bool { return workflow.AllHandlersFinished(ctx) })
			}
			if err == nil {
				return b.again(ctx, j.state(wait))
			}
		}
		switch {
		case j.Aborted:
			*b.outcome(), err = OutcomeAborted, nil
		case err != nil:
			*b.outcome() = OutcomeFailed
		}
		j.ending = true
		b.cleanUp(cleanCtx)
		for _, c := range j.claims {
			c.release(cleanCtx)
		}
		j.ending = false
		// Whoever reported a change during the clean-up did not start the job, since it still ran.
		if err != nil || letSignalsIn(runCtx) != nil || !j.changed {
			return err
		}
	}
}

// state is what the next run has to know. Notices that have come are taken in before, or they would be lost.
func (j *job) state(wait Wait) JobState {
	j.listen()
	s := JobState{Started: j.Started, Wait: wait, Paused: j.Paused, Done: j.done.Len() > 0}
	s.Lease = j.claims[0].ClaimState
	for _, c := range j.claims[1:] {
		s.Others = append(s.Others, c.ClaimState)
	}
	return s
}

// serveSignals serves the signals that all jobs take, for as long as the workflow runs. abort cancels the run; the
// clean-up still happens.
func (j *job) serveSignals(ctx workflow.Context, cancelRun workflow.CancelFunc) {
	serve(ctx, jobs.SignalAbort, nil, func() {
		j.Aborted = true
		cancelRun()
	})
	serve(ctx, jobs.SignalDone, nil, func() { j.done.SendAsync(struct{}{}) })
	serve(ctx, jobs.SignalPause, nil, func() {
		j.Paused = true
		if j.onPause != nil {
			j.onPause()
		}
	})
	serve(ctx, jobs.SignalResume, nil, func() { j.Paused = false })
}

// serve handles each signal of a name, whose argument it decodes into into, until the context ends.
func serve(ctx workflow.Context, name string, into any, handle func()) {
	workflow.Go(ctx, func(ctx workflow.Context) {
		for c := workflow.GetSignalChannel(ctx, name); receive(ctx, c, into); {
			handle()
		}
	})
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
	if j.warning != "" {
		s += "  \n" + j.warning
	}
	return s
}

// warn says what people have to know beside what the job waits for, until it is told otherwise.
func (j *job) warn(ctx workflow.Context, what string) {
	if j.warning != what {
		j.warning = what
		workflow.SetCurrentDetails(ctx, j.details())
	}
}

const pausedWait = "the signal `resume`: somebody paused this job"

// gate holds a job while it is paused.
func (j *job) gate(ctx workflow.Context) error {
	if !j.Paused {
		return nil
	}
	j.waitFor(ctx, pausedWait)
	return j.await(ctx, func() bool { return !j.Paused })
}

func isType(err error, errorType string) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.Type() == errorType
}
