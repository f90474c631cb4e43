package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// confirmWithin is how long to wait until a job shows that it heard a signal.
const confirmWithin = 5 * time.Second

// Signal sends a signal without an argument to a job that takes it, and waits until the job shows that it heard it.
func (c *Command) Signal(ctx context.Context, job, signal string) error {
	id, err := taker(job, signal)
	if err != nil {
		return &ExitError{ExitUsage, err}
	}
	return c.signal(ctx, id, signal, "")
}

// signal sends a signal, and prints the job when it shows that it heard it. If it does not in time, that is a warning.
func (c *Command) signal(ctx context.Context, id, signal, osd string) error {
	before, err := c.Temporal.Job(ctx, id)
	if err == nil && before.execution().State != Running {
		err = ErrNoJob
	}
	if err == nil {
		err = c.Temporal.Signal(ctx, id, signal, argument(osd))
	}
	if errors.Is(err, ErrNoJob) {
		return c.doesNotRun(ctx, id, before)
	}
	if err != nil {
		return err
	}
	now, err := c.await(ctx, id, confirmWithin, func(now Job) bool { return now.heard(before, signal, osd) })
	if err != nil {
		fmt.Fprintf(c.Err, "warning: %s has the signal %q, but has not shown yet that it heard it: %v\n",
			id, signal, err)
		return nil
	}
	if c.Output != "" {
		return Encode(c.Out, now, c.Output)
	}
	fmt.Fprintln(c.Out, now.Describe(c.Now()))
	if d, _ := now.(Drain); d.State == Running && signal == jobs.SignalAbort {
		fmt.Fprintf(c.Out, "it is cleaning up; `lockkeeper status %s -w` follows it\n", d.Node)
	}
	return nil
}

func argument(osd string) any {
	if osd == "" {
		return nil
	}
	return osd
}

// shows tells whether a status shows the effect of a signal that every job takes; of others it does not know.
func shows(s workflows.JobStatus, signal string) bool {
	switch signal {
	case jobs.SignalPause:
		return s.Paused
	case jobs.SignalResume:
		return !s.Paused
	case jobs.SignalAbort:
		return s.Aborted
	default:
		return true
	}
}

// doesNotRun says which jobs run instead of the one that was asked for; last is its last run, if there was one.
func (c *Command) doesNotRun(ctx context.Context, id string, last Job) error {
	j, target, _ := jobs.Parse(id)
	what := id + " does not run"
	if target.Node != "" {
		what = fmt.Sprintf("no %s of %q runs", j.Noun, target.Node)
	}
	if last != nil {
		what += ": " + last.Describe(c.Now())
	}
	running, err := c.Temporal.Running(ctx)
	if err != nil {
		return fmt.Errorf("%s; the running ones cannot be listed: %w", what, err)
	}
	running = slices.DeleteFunc(running, func(other Job) bool {
		o, _, _ := jobs.Parse(other.execution().WorkflowID)
		return o == nil || o.Noun != j.Noun
	})
	if len(running) == 0 {
		return fmt.Errorf("%s, nor any other %s", what, j.Noun)
	}
	what += "; running:"
	for _, j := range running {
		what += "\n  " + j.Describe(c.Now())
	}
	return errors.New(what)
}
