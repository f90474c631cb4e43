package cli

import (
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

// execution is a job of any kind: a drain or a rollout.
type Job interface {
	execution() Execution
	// Describe is one sentence about it.
	Describe(now time.Time) string
	// Succeeded tells whether it ended as it should.
	Succeeded() bool
	// WaitsFor says what keeps it from going on, and waitsSince since when; "" when nothing does.
	WaitsFor() string
	waitsSince() time.Time
	// heard tells whether it shows the effect of a signal; osd is the argument of `skip`, before the job until then.
	heard(before Job, signal, osd string) bool
}

// looking asks for the last run of one job.
type looking[J Job] func(context.Context) (J, error)

// StayOptions say whether to remain with a job that was started.
type StayOptions struct {
	Follow bool // print what happens until the job ends
	Wait   bool // only wait until it ends
	// Timeout ends following and waiting; the job goes on. 0: never.
	Timeout time.Duration
}

// followEvery is how often a job that somebody follows is asked. It asks Temporal only.
const followEvery = 250 * time.Millisecond

// staying is what one does with the looks at a job.
type staying[J Job] struct {
	id   string
	look looking[J]
	// news tells what is new.
	news func(J)
	// stands says why the job goes no further by itself, so that there is nothing to wait for; nil: it does.
	stands func(J) error
	ended  func(J) error
}

// stay remains with a job until it ends or goes no further, and reports how.
func stay[J Job](ctx context.Context, c *Command, timeout time.Duration, s staying[J]) error {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	goesOn, trouble := s.id+" goes on", ""
	for {
		now, err := s.look(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, ErrNoJob):
			return fmt.Errorf("%s: %w", s.id, err)
		case err != nil && err.Error() != trouble:
			trouble = err.Error()
			fmt.Fprintf(c.Err, "%s  %s; trying again\n", clock(c.Now()), trouble)
		case err == nil:
			trouble, goesOn = "", now.Describe(c.Now())
			s.news(now)
			if now.execution().State != Running {
				return s.ended(now)
			}
			if err := s.stands(now); err != nil {
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

// How long to look after a new job: long enough to see it fail on bad input, or nobody take it up.
const (
	firstLook      = 3 * time.Second
	firstLookEvery = 100 * time.Millisecond
)

// begin looks after a new job until it is under way, and reports one that failed at once. The job that comes back is as it was
// last seen; seen is false if it was not.
func begin[J Job](ctx context.Context, look looking[J], underWay func(J) bool) (last J, seen bool, err error) {
	limited, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	tick := time.NewTicker(firstLookEvery)
	defer tick.Stop()
	for {
		if now, err := look(limited); err == nil {
			last, seen = now, true
			if e := now.execution(); e.State != Running || underWay(now) {
				return last, true, nil
			}
		}
		select {
		case <-limited.Done():
			return last, seen, ctx.Err()
		case <-tick.C:
		}
	}
}
