package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Running is the State of a job that has not ended.
const Running = "Running"

// Execution is what Temporal knows of a job of any kind.
type Execution struct {
	WorkflowID string    `json:"workflowID"`
	RunID      string    `json:"runID"`
	State      string    `json:"state"` // Running, Completed, Failed, Terminated, Canceled, TimedOut
	Started    time.Time `json:"started"`
	Ended      time.Time `json:"ended,omitzero"`
	// Silent is why the job did not say how it is.
	Silent string `json:"silent,omitempty"`
	// Step is the step that is under way, if it has something to tell.
	Step *Step `json:"step,omitempty"`
	// Failure is why it ended otherwise than by itself.
	Failure string `json:"failure,omitempty"`
}

func (e Execution) execution() Execution { return e }

// describe is one sentence about a job, in a phase and waiting for something if there is any.
func (e Execution) describe(now time.Time, phase, waitsFor string) string {
	if e.State != Running {
		s := fmt.Sprintf("%s ended %s: %s", e.WorkflowID, when(e.Ended, now), phase)
		if e.Failure != "" {
			s += ": " + e.Failure
		}
		return s
	}
	s := fmt.Sprintf("%s runs since %s", e.WorkflowID, when(e.Started, now))
	if phase != "" {
		s += ", phase " + phase
	}
	if waitsFor != "" {
		s += ", waits for " + waitsFor
	}
	return s
}

// triesAgain says which step has failed and is tried again, and why; "": none.
func (e Execution) triesAgain() string {
	if e.Step == nil || e.Step.LastFailure == "" {
		return ""
	}
	return fmt.Sprintf("attempt %d of %s: %s", e.Step.Attempt, e.Step.Name, e.Step.LastFailure)
}

// Job is a job of any kind: a drain or a rollout.
type Job interface {
	execution() Execution
	// Describe is one sentence about it.
	Describe(now time.Time) string
	// Succeeded tells whether it ended as it should.
	Succeeded() bool
	// WaitsFor says what keeps it from going on, and waitsSince since when; "" when nothing does.
	WaitsFor() string
	waitsSince() time.Time
	// done says what it did, once it has succeeded.
	done() string
	// asks says what a person has to do so that it goes on; "": nothing that it can tell.
	asks() string
	follower() follower
	// heard tells whether it shows the effect of a signal; osd is the argument of `skip`, before the job until then.
	heard(before Job, signal, osd string) bool
}

// StayOptions say whether to remain with a job that was started.
type StayOptions struct {
	Follow bool // print what happens until the job ends
	Wait   bool // only wait until it ends
	// Timeout ends following and waiting; the job goes on. 0: never.
	Timeout time.Duration
}

// followEvery is how often a job that somebody follows is asked. It asks Temporal only.
const followEvery = 250 * time.Millisecond

// follower turns looks at one job into lines, one for each thing that is new.
type follower interface {
	news(ctx context.Context, c *Command, now Job) []string
}

// stay remains with a job until it ends, and reports how; or until stands says why it goes no further by itself.
func (c *Command) stay(ctx context.Context, id string, o StayOptions, stands func(Job) error) error {
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	goesOn, trouble, asked, silent := id+" goes on", "", false, 0
	var f follower
	for {
		now, err := c.Temporal.Job(ctx, id)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, ErrNoJob):
			return fmt.Errorf("%s: %w", id, err)
		case err != nil && err.Error() != trouble:
			trouble = err.Error()
			fmt.Fprintf(c.Err, "%s  %s; trying again\n", clock(c.Now()), trouble)
		case err == nil:
			trouble, goesOn = "", now.Describe(c.Now())
			if f == nil {
				f = now.follower()
			}
			if silent++; now.execution().Silent == "" {
				silent = 0
			}
			switch question := now.asks(); {
			case o.Follow && silent == 1: // a server that is busy leaves one question without an answer
			case o.Follow:
				c.print(f.news(ctx, c, now))
			case (question != "") != asked:
				if asked = question != ""; asked {
					fmt.Fprintf(c.Err, "%s  %s\n", clock(c.Now()), question)
				}
			}
			if now.execution().State != Running {
				return c.ended(now)
			}
			if err := stands(now); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return &ExitError{ExitStillRuns, errors.New("no longer waiting; " + goesOn)}
		case <-tick.C:
		}
	}
}

// neverStands is for stay: whatever the job waits for may still come.
func neverStands(Job) error { return nil }

func (c *Command) ended(job Job) error {
	if !job.Succeeded() {
		return &ExitError{ExitNotDone, errors.New(job.Describe(c.Now()))}
	}
	fmt.Fprintf(c.Out, "%s  %s\n", clock(job.execution().Ended), job.done())
	return nil
}

func (c *Command) print(lines []string) {
	for _, l := range lines {
		fmt.Fprintln(c.Out, l)
	}
}

// Runs tells whether a job runs, as far as Temporal can be asked.
func (c *Command) Runs(ctx context.Context, id string) bool { return runs(ctx, c.Temporal, id) }

func runs(ctx context.Context, t Temporal, id string) bool {
	job, err := t.Job(ctx, id)
	return err == nil && job.execution().State == Running
}

// Follow prints what happens to a job until it ends, and stays with a rollout that has halted, too: who watches wants
// to see it go on.
func (c *Command) Follow(ctx context.Context, id string) error {
	return c.stay(ctx, id, StayOptions{Follow: true}, neverStands)
}

// firstLook is how long to look after a new job: long enough to see it fail on bad input, or nobody take it up.
const firstLook = 3 * time.Second

// begin looks after a new job until it is under way or has ended, and returns it as it was last seen; nil: it was not.
func (c *Command) begin(ctx context.Context, id string, underWay func(Job) bool) (last Job, err error) {
	last, late := c.await(ctx, id, firstLook, func(now Job) bool {
		return now.execution().State != Running || underWay(now)
	})
	if late != nil {
		err = ctx.Err()
	}
	return last, err
}

// awaitEvery is how often a job is asked that something is awaited of at once.
const awaitEvery = 100 * time.Millisecond

// await looks at a job until it is as it should be, and returns it as it was last seen. late says, if time is over
// before, why it last did not tell how it is.
func (c *Command) await(
	ctx context.Context, id string, within time.Duration, is func(Job) bool,
) (last Job, late error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(awaitEvery)
	defer tick.Stop()
	silent := "no word from it"
	for {
		now, err := c.Temporal.Job(ctx, id)
		switch {
		case err != nil:
			silent = err.Error()
		case is(now):
			return now, nil
		default:
			last, silent = now, cmp.Or(now.execution().Silent, silent)
		}
		select {
		case <-ctx.Done():
			return last, errors.New(silent)
		case <-tick.C:
		}
	}
}
