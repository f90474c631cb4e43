package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
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
type execution interface {
	execution() Execution
	// Describe is one sentence about it.
	Describe(now time.Time) string
	// Succeeded tells whether it ended as it should.
	Succeeded() bool
	// WaitsFor says what keeps it from going on, and waitsSince since when; "" when nothing does.
	WaitsFor() string
	waitsSince() time.Time
}

// looking asks for the last run of one job.
type looking[J execution] func(context.Context) (J, error)

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
type staying[J execution] struct {
	id   string
	look looking[J]
	// news tells what is new.
	news func(J)
	// stands says why the job goes no further by itself, so that there is nothing to wait for; nil: it does.
	stands func(J) error
	ended  func(J) error
}

// stay remains with a job until it ends or goes no further, and reports how.
func stay[J execution](ctx context.Context, c *Command, timeout time.Duration, s staying[J]) error {
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
func begin[J execution](ctx context.Context, look looking[J], underWay func(J) bool) (last J, seen bool, err error) {
	late := wait.PollUntilContextTimeout(ctx, firstLookEvery, firstLook, true, func(ctx context.Context) (bool, error) {
		now, err := look(ctx)
		if err != nil {
			return false, nil //nolint:nilerr // the next look may be answered
		}
		last, seen = now, true
		return now.execution().State != Running || underWay(now), nil
	})
	if late != nil {
		err = ctx.Err()
	}
	return last, seen, err
}

// How long to wait for a job's own word that it heard a signal.
const (
	confirmWithin = 5 * time.Second
	confirmEvery  = 100 * time.Millisecond
)

// signalling is one signal to one job.
type signalling[J execution] struct {
	id, signal string
	look       looking[J]
	send       func(context.Context) error
	// heard tells whether the job shows the effect.
	heard func(before, now J) bool
	// none says that the job does not run, and list which others of its kind do.
	none, kind string
	list       func(context.Context) ([]J, error)
}

// signal sends a signal, and waits until the job shows that it heard it. known is false if it did not in time, which is a warning.
func signal[J execution](ctx context.Context, c *Command, s signalling[J]) (job J, known bool, err error) {
	before, err := s.look(ctx)
	if err == nil && before.execution().State != Running {
		err = ErrNoJob
	}
	if err == nil {
		err = s.send(ctx)
	}
	if errors.Is(err, ErrNoJob) {
		return job, false, s.nobody(ctx, before, c.Now())
	}
	if err != nil {
		return job, false, err
	}
	job, err = confirm(ctx, s.look, func(now J) bool { return s.heard(before, now) })
	if err != nil {
		fmt.Fprintf(c.Err, "warning: %s has the signal %q, but has not shown yet that it heard it: %v\n", s.id, s.signal, err)
		return job, false, nil
	}
	return job, true, nil
}

// confirm waits for the job to show the effect of a signal.
func confirm[J execution](ctx context.Context, look looking[J], heard func(J) bool) (job J, err error) {
	silent := "no word from it"
	late := wait.PollUntilContextTimeout(ctx, confirmEvery, confirmWithin, true, func(ctx context.Context) (bool, error) {
		now, err := look(ctx)
		switch {
		case err != nil:
			silent = err.Error()
		case heard(now):
			job = now
			return true, nil
		case now.execution().Silent != "":
			silent = now.execution().Silent
		}
		return false, nil
	})
	if late != nil {
		return job, errors.New(silent)
	}
	return job, nil
}

// nobody says what there is instead of the job that was asked for.
func (s signalling[J]) nobody(ctx context.Context, last J, now time.Time) error {
	what := s.none
	if last.execution().State != "" {
		what += ": " + last.Describe(now)
	}
	running, err := s.list(ctx)
	if err != nil {
		return fmt.Errorf("%s; the running ones cannot be listed: %w", what, err)
	}
	if len(running) == 0 {
		return fmt.Errorf("%s, nor any other %s", what, s.kind)
	}
	what += "; running:"
	for _, j := range running {
		what += "\n  " + j.Describe(now)
	}
	return errors.New(what)
}
