package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper/workflows"
)

// How long to wait for a job's own word that it heard a signal.
const (
	confirmWithin = 5 * time.Second
	confirmEvery  = 100 * time.Millisecond
)

// Signal sends one of the signals that every job takes, and waits until the job shows that it heard it.
func (c *Command) Signal(ctx context.Context, job, signal string) error {
	id, isRollout, err := rolloutID(job)
	switch {
	case err != nil:
		return &ExitError{ExitUsage, err}
	case isRollout && signal == workflows.SignalDone:
		return &ExitError{ExitUsage, wrong("JOB", job, "must be a drain: a rollout sees by itself when it is done")}
	case isRollout:
		return c.signalRollout(ctx, id, signal, "")
	}
	node := job
	if drained, ok := workflows.DrainedNode(job); ok {
		node = drained
	}
	return c.signalDrain(ctx, node, signal)
}

func (c *Command) signalDrain(ctx context.Context, node, signal string) error {
	before, err := c.Temporal.Drain(ctx, node)
	if err == nil && before.State != Running {
		err = ErrNoJob
	}
	if err == nil {
		err = c.Temporal.Signal(ctx, node, signal)
	}
	if errors.Is(err, ErrNoJob) {
		return c.noJob(ctx, node, before)
	}
	if err != nil {
		return err
	}
	job, err := c.confirm(ctx, before, signal)
	if err != nil {
		fmt.Fprintf(c.Err, "warning: %s has the signal %q, but has not shown yet that it heard it: %v\n", workflows.DrainID(node), signal, err)
		return nil
	}
	fmt.Fprintln(c.Out, job.Describe(c.Now()))
	if signal == workflows.SignalAbort && job.State == Running {
		fmt.Fprintf(c.Out, "it is cleaning up; `lockkeeper status %s -w` follows it\n", node)
	}
	return nil
}

// confirm waits for the job to show the effect of a signal.
func (c *Command) confirm(ctx context.Context, before Job, signal string) (Job, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	tick := time.NewTicker(confirmEvery)
	defer tick.Stop()
	silent := "no word from it"
	for {
		job, err := c.Temporal.Drain(ctx, before.Node)
		switch {
		case err != nil:
			silent = err.Error()
		case heard(before, job, signal):
			return job, nil
		case job.Silent != "":
			silent = job.Silent
		}
		select {
		case <-ctx.Done():
			return Job{}, errors.New(silent)
		case <-tick.C:
		}
	}
}

func heard(before, now Job, signal string) bool {
	if now.State != Running || now.RunID != before.RunID {
		return true
	}
	s := now.Status
	if s == nil {
		return false
	}
	switch signal {
	case workflows.SignalPause:
		return s.Paused
	case workflows.SignalResume:
		return !s.Paused
	case workflows.SignalAbort:
		return s.Aborted
	default:
		// `done` is kept until the job waits for the node; before that there is nothing to see.
		return s.Phase != workflows.PhaseReturn
	}
}

// noJob says what there is instead of the job that was asked for.
func (c *Command) noJob(ctx context.Context, node string, last Job) error {
	what := fmt.Sprintf("no drain of %q runs", node)
	if last.State != "" {
		what += ": " + last.Describe(c.Now())
	}
	running, err := c.Temporal.Drains(ctx)
	if err != nil {
		return fmt.Errorf("%s; the running ones cannot be listed: %w", what, err)
	}
	if len(running) == 0 {
		return fmt.Errorf("%s, nor any other", what)
	}
	what += "; running:"
	for _, j := range running {
		what += "\n  " + j.Describe(c.Now())
	}
	return errors.New(what)
}
