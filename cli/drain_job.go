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

func (j Drain) said() *workflows.JobStatus {
	if j.Status == nil {
		return nil
	}
	return &j.Status.JobStatus
}

// Phase is the job's phase with its number, or how it ended.
func (j Drain) Phase() string {
	outcome := ""
	if j.Result != nil {
		outcome = j.Result.Outcome
	}
	s := j.phase(j.said(), outcome)
	if j.State == Running && j.Status != nil && j.Status.Observe && !j.Status.Paused {
		s += ", observing"
	}
	return s
}

// WaitsFor says what keeps the job from going on, and what else there is to know; "" when nothing does.
func (j Drain) WaitsFor() string {
	warning := ""
	if j.Status != nil {
		warning = j.Status.Result.NotDetached
	}
	return j.waitsFor(j.said(), warning)
}

func (j Drain) waitsSince() time.Time { return j.waits(j.said()) }

func (j Drain) done() string {
	r := j.Result
	return fmt.Sprintf("%s after %s: %s evicted, %s waited for the lease%s", outcomes[r.Outcome],
		r.Took.Round(time.Second), pods(r.Evicted), r.Waited.Round(time.Second), detached(r.AttachedByHand))
}

// detached is what a job had detached that somebody had attached by hand; "": nothing.
func detached(a workflows.AttachedByHand) string {
	if len(a.Detached) == 0 {
		return ""
	}
	return ", " + some(a.Detached, mostNames) + " detached, which was attached by hand"
}

func (j Drain) asks() string { return "" }

func (j Drain) follower() follower { return &drainFollower{} }

func (j Drain) heard(before Job, signal, _ string) bool {
	var done func() bool
	if signal == jobs.SignalDone {
		// It is kept until the job waits for the node; before that there is nothing to see.
		done = func() bool { return j.Status.Phase != workflows.PhaseReturn }
	}
	return j.shows(before, j.said(), signal, done)
}

// Describe is one sentence about a drain.
func (j Drain) Describe(now time.Time) string {
	return j.sentence(now, j.said(), j.Phase(), j.WaitsFor())
}
