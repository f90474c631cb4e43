package cli

import (
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// Drain is one drain: what Temporal knows of it, and what it says of itself.
type Drain struct {
	Node string `json:"node"`
	Execution
	// Status is the job's own answer; nil with the reason in Silent when it gave none.
	Status *workflows.DrainStatus `json:"status,omitempty"`
	// Result is how it ended, if it did so by itself.
	Result *DrainResult `json:"result,omitempty"`
}

// Succeeded tells whether the drain ended as it should: the node is back or gone, and the storage is whole.
func (j Drain) Succeeded() bool {
	return j.Result != nil && (j.Result.Outcome == workflows.OutcomeDone || j.Result.Outcome == workflows.OutcomeGone)
}

// Phase is the job's phase with its number, "Evicting 4/6", or how it ended.
func (j Drain) Phase() string {
	switch {
	case j.State != Running && j.Result != nil:
		return j.Result.Outcome
	case j.State != Running:
		return j.State
	case j.Status == nil:
		return "unknown"
	}
	s := fmt.Sprintf("%s %d/%d", j.Status.Phase, j.Status.Step, j.Status.Steps)
	switch {
	case j.Status.Paused:
		s += ", paused"
	case j.Status.Observe:
		s += ", observing"
	}
	return s
}

// WaitsFor says what keeps the job from going on; "" when nothing does.
func (j Drain) WaitsFor() string {
	var out string
	switch {
	case j.State != Running:
		return j.Failure
	case j.Status != nil:
		out = j.Status.WaitsFor
	default:
		out = j.Silent
	}
	return join(out, j.triesAgain())
}

// waitsSince is since when it waits for what WaitsFor says.
func (j Drain) waitsSince() time.Time {
	if j.Status == nil {
		return j.Started
	}
	return j.Status.Since
}

func (j Drain) done() string {
	r := j.Result
	return fmt.Sprintf("%s after %s: %s evicted, %s waited for the lease",
		outcomes[r.Outcome], r.Took.Round(time.Second), pods(r.Evicted), r.Waited.Round(time.Second))
}

func (j Drain) asks() string { return "" }

func (j Drain) follower() follower { return &drainFollower{} }

func (j Drain) heard(before Job, signal, _ string) bool {
	switch {
	case j.State != Running || j.RunID != before.execution().RunID:
		return true
	case j.Status == nil:
		return false
	case signal == jobs.SignalDone:
		// It is kept until the job waits for the node; before that there is nothing to see.
		return j.Status.Phase != workflows.PhaseReturn
	default:
		return shows(j.Status.JobStatus, signal)
	}
}

// Describe is one sentence about a drain.
func (j Drain) Describe(now time.Time) string {
	if j.State == Running && j.Status == nil {
		return fmt.Sprintf("%s runs since %s; %s", j.WorkflowID, when(j.Started, now), j.WaitsFor())
	}
	return j.describe(now, j.Phase(), j.WaitsFor())
}
