package cli

import (
	"context"
	"fmt"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// Signal sends one of the signals that every job takes, and waits until the job shows that it heard it.
func (c *Command) Signal(ctx context.Context, job, signal string) error {
	id, err := taker(job, signal)
	if err != nil {
		return &ExitError{ExitUsage, err}
	}
	if target, isDrain := jobs.DrainNode.Target(id); isDrain {
		return c.signalDrain(ctx, target.Node, signal)
	}
	return c.signalRollout(ctx, id, signal, "")
}

func (c *Command) signalDrain(ctx context.Context, node, name string) error {
	job, known, err := signal(ctx, c, signalling[Drain]{
		id: jobs.DrainNode.ID(node), signal: name, none: fmt.Sprintf("no drain of %q runs", node), kind: "drain",
		look: func(ctx context.Context) (Drain, error) {
			return lookUp[Drain](ctx, c.Temporal, jobs.DrainNode.ID(node))
		},
		send:  func(ctx context.Context) error { return c.Temporal.Signal(ctx, jobs.DrainNode.ID(node), name, nil) },
		heard: func(before, now Drain) bool { return heard(before, now, name) },
	})
	if err != nil || !known {
		return err
	}
	if err := c.tell(job); err != nil {
		return err
	}
	if name == jobs.SignalAbort && job.State == Running && c.Output == "" {
		fmt.Fprintf(c.Out, "it is cleaning up; `lockkeeper status %s -w` follows it\n", node)
	}
	return nil
}

func heard(before, now Drain, signal string) bool {
	if now.State != Running || now.RunID != before.RunID {
		return true
	}
	s := now.Status
	if s == nil {
		return false
	}
	switch signal {
	case jobs.SignalPause:
		return s.Paused
	case jobs.SignalResume:
		return !s.Paused
	case jobs.SignalAbort:
		return s.Aborted
	default:
		// `done` is kept until the job waits for the node; before that there is nothing to see.
		return s.Phase != workflows.PhaseReturn
	}
}

// tell prints the job as it is now.
func (c *Command) tell(job Job) error {
	if c.Output != "" {
		return Encode(c.Out, job, c.Output)
	}
	fmt.Fprintln(c.Out, job.Describe(c.Now()))
	return nil
}
