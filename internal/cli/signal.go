package cli

import (
	"context"
	"fmt"

	"github.com/lockkeeper/lockkeeper/workflows"
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

func (c *Command) signalDrain(ctx context.Context, node, name string) error {
	job, known, err := signal(ctx, c, signalling[Job]{
		id: workflows.DrainID(node), signal: name, none: fmt.Sprintf("no drain of %q runs", node), kind: "drain", list: c.Temporal.Drains,
		look:  func(ctx context.Context) (Job, error) { return c.Temporal.Drain(ctx, node) },
		send:  func(ctx context.Context) error { return c.Temporal.Signal(ctx, node, name) },
		heard: func(before, now Job) bool { return heard(before, now, name) },
	})
	if err != nil || !known {
		return err
	}
	if err := c.tell(job); err != nil {
		return err
	}
	if name == workflows.SignalAbort && job.State == Running && c.Output == "" {
		fmt.Fprintf(c.Out, "it is cleaning up; `lockkeeper status %s -w` follows it\n", node)
	}
	return nil
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

// tell prints the job as it is now.
func (c *Command) tell(job execution) error {
	if c.Output != "" {
		return Encode(c.Out, job, c.Output)
	}
	fmt.Fprintln(c.Out, job.Describe(c.Now()))
	return nil
}
