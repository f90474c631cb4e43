package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// Fence is the fencing of one node: what Temporal knows of its job, and what the job says of itself.
type Fence struct {
	Node string `json:"node"`
	Execution
	// Status is the job's own answer; nil with the reason in Silent when it gave none.
	Status *workflows.FenceStatus `json:"status,omitempty"`
	// Result is how it ended, if it did so by itself.
	Result *FenceResult `json:"result,omitempty"`
}

// FenceResult is how the fencing of a node ended, with its duration as DrainResult has it.
type FenceResult struct{ workflows.FenceNodeResult }

// MarshalJSON writes the duration as Kubernetes does.
func (r FenceResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		workflows.FenceNodeResult
		Took metav1.Duration `json:"took"`
	}{r.FenceNodeResult, metav1.Duration{Duration: r.Took}})
}

// Succeeded tells whether it ended by itself: whatever became of the node, its data is whole.
func (j Fence) Succeeded() bool {
	return j.Result != nil && j.Result.Outcome != workflows.OutcomeAborted && j.Result.Outcome != workflows.OutcomeFailed
}

func (j Fence) said() *workflows.JobStatus {
	if j.Status == nil {
		return nil
	}
	return &j.Status.JobStatus
}

// Phase is the job's phase with its number, or how it ended.
func (j Fence) Phase() string {
	outcome := ""
	if j.Result != nil {
		outcome = j.Result.Outcome
	}
	return j.phase(j.said(), outcome)
}

// WaitsFor says what keeps the job from going on; "" when nothing does.
func (j Fence) WaitsFor() string { return j.waitsFor(j.said(), "") }

func (j Fence) waitsSince() time.Time { return j.waits(j.said()) }

var fenceOutcomes = map[string]string{
	workflows.OutcomeDone:      "Done: the node is back and its storage is whole,",
	workflows.OutcomeGone:      "Gone: its Machine is gone and the data is whole,",
	workflows.OutcomeRecovered: "Recovered: it need not be fenced any more, and its Machine stays held,",
	workflows.OutcomeNotHeld:   "NotHeld: nothing holds its Machine,",
}

func (j Fence) done() string {
	s := fmt.Sprintf("%s after %s", fenceOutcomes[j.Result.Outcome], j.Result.Took.Round(time.Second))
	if j.Result.Released != "" {
		s += "; released: " + j.Result.Released
	}
	if j.Result.Against != "" {
		s += "; passed over: " + j.Result.Against
	}
	return s
}

func (j Fence) asks() string { return "" }

func (j Fence) follower() follower { return &phaseFollower{} }

func (j Fence) heard(before Job, signal, _ string) bool {
	var released func() bool
	if signal == workflows.SignalFenceRelease {
		released = func() bool { return j.Status.Override != nil }
	}
	return j.shows(before, j.said(), signal, released)
}

// Describe is one sentence about it.
func (j Fence) Describe(now time.Time) string {
	return j.sentence(now, j.said(), j.Phase(), j.WaitsFor())
}

func (t *temporalClient) fence(ctx context.Context, id string) (Job, error) {
	e, status, result, err := ask[workflows.FenceStatus, FenceResult](ctx, t, id)
	if err != nil {
		return nil, err
	}
	if status != nil {
		e.Started = status.Started
	}
	target, _ := jobs.FenceNode.Target(id)
	return Fence{Node: target.Node, Execution: e, Status: status, Result: result}, nil
}

// StartFence implements Temporal.
func (t *temporalClient) StartFence(ctx context.Context, in workflows.FenceNodeInput) error {
	return t.start(ctx, jobs.FenceNode.ID(in.Node), "fencing of "+in.Node, jobs.FenceNode.Type, in)
}
