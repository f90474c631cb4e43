package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file is what jobs have in common that go through phases, one after the other. said is a job's own answer; nil:
// it gave none.

// phase is its phase with its number, "Evicting 4/6", or how it ended: outcome, if it ended by itself.
func (e Execution) phase(said *workflows.JobStatus, outcome string) string {
	switch {
	case e.State != Running:
		return cmp.Or(outcome, e.State)
	case said == nil:
		return "unknown"
	}
	s := fmt.Sprintf("%s %d/%d", said.Phase, said.Step, said.Steps)
	if said.Paused {
		s += ", paused"
	}
	return s
}

// waitsFor says what keeps it from going on, and what else there is to know; "" when nothing does.
func (e Execution) waitsFor(said *workflows.JobStatus, also string) string {
	switch {
	case e.State != Running:
		return e.Failure
	case said == nil:
		return join(e.Silent, e.triesAgain())
	}
	return join(join(said.WaitsFor, also), e.triesAgain())
}

// waits is since when it waits for that.
func (e Execution) waits(said *workflows.JobStatus) time.Time {
	if said == nil {
		return e.Started
	}
	return said.Since
}

// shows tells whether it shows the effect of a signal, or another run has taken it along; effect looks for one of its
// own, or is nil.
func (e Execution) shows(before Job, said *workflows.JobStatus, signal string, effect func() bool) bool {
	switch {
	case e.State != Running || e.RunID != before.execution().RunID:
		return true
	case said == nil:
		return false
	case effect != nil:
		return effect()
	}
	return shows(*said, signal)
}

// sentence is one about it.
func (e Execution) sentence(now time.Time, said *workflows.JobStatus, phase, waits string) string {
	if e.State == Running && said == nil {
		return fmt.Sprintf("%s runs since %s; %s", e.WorkflowID, when(e.Started, now), waits)
	}
	return e.describe(now, phase, waits)
}

// phased is a job whose phase and wait are all that there is to follow.
type phased interface {
	Job
	Phase() string
}

// phaseFollower turns looks at such a job into lines.
type phaseFollower struct{ phase, waits string }

func (f *phaseFollower) news(_ context.Context, c *Command, j Job) (out []string) {
	job, is := j.(phased)
	if !is || job.execution().State != Running {
		return nil
	}
	phase, waits := job.Phase(), job.WaitsFor()
	if phase != f.phase || waits != f.waits {
		line := clock(c.Now()) + "  " + phase
		if waits != "" {
			line += ": waits for " + waits
		}
		out = append(out, line)
	}
	f.phase, f.waits = phase, waits
	return out
}
