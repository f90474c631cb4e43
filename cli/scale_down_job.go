package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// ScaleDown is the removal of one node: what Temporal knows of its job, and what the job says of itself.
type ScaleDown struct {
	Node string `json:"node"`
	Execution
	// Status is the job's own answer; nil with the reason in Silent when it gave none.
	Status *workflows.ScaleDownStatus `json:"status,omitempty"`
	// Result is how it ended, if it did so by itself.
	Result *ScaleDownResult `json:"result,omitempty"`
}

// ScaleDownResult is how a scale-down ended, with its durations as DrainResult has them.
type ScaleDownResult struct{ workflows.ScaleDownNodeResult }

// MarshalJSON writes durations as Kubernetes does.
func (r ScaleDownResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		workflows.ScaleDownNodeResult
		Took   metav1.Duration `json:"took"`
		Waited metav1.Duration `json:"waitedForLease"`
	}{r.ScaleDownNodeResult, metav1.Duration{Duration: r.Took}, metav1.Duration{Duration: r.Waited}})
}

// Succeeded tells whether it ended by itself: whatever became of the node, nothing is open for it any more.
func (j ScaleDown) Succeeded() bool {
	return j.Result != nil && scaleDownOutcomes[j.Result.Outcome] != ""
}

func (j ScaleDown) said() *workflows.JobStatus {
	if j.Status == nil {
		return nil
	}
	return &j.Status.JobStatus
}

// Phase is the job's phase with its number, or how it ended.
func (j ScaleDown) Phase() string {
	outcome := ""
	if j.Result != nil {
		outcome = j.Result.Outcome
	}
	return j.phase(j.said(), outcome)
}

// WaitsFor says what keeps the job from going on, and what else there is to know; "" when nothing does.
func (j ScaleDown) WaitsFor() string {
	warning := ""
	if j.Status != nil {
		warning = cmp.Or(j.Status.Warning, j.Status.Result.NotDetached)
	}
	return j.waitsFor(j.said(), warning)
}

func (j ScaleDown) waitsSince() time.Time { return j.waits(j.said()) }

var scaleDownOutcomes = map[string]string{
	workflows.OutcomeGone:    "Gone: the node is deleted,",
	workflows.OutcomeStayed:  "Stayed: nothing announces any more that the node leaves,",
	workflows.OutcomeExpired: "Expired: the taint that announced the removal was forgotten,",
	workflows.OutcomeRevoked: "Revoked: nothing on the node is looked after any more,",
}

func (j ScaleDown) done() string {
	r := j.Result
	s := fmt.Sprintf("%s after %s: %s waited for the lease", scaleDownOutcomes[r.Outcome], r.Took.Round(time.Second),
		r.Waited.Round(time.Second))
	if r.Turns > 0 {
		s += fmt.Sprintf(", which went back to others %d times meanwhile", r.Turns)
	}
	return s + detached(r.AttachedByHand)
}

func (j ScaleDown) asks() string { return "" }

func (j ScaleDown) follower() follower { return &phaseFollower{} }

func (j ScaleDown) heard(before Job, signal, _ string) bool {
	return j.shows(before, j.said(), signal, nil)
}

// Describe is one sentence about it.
func (j ScaleDown) Describe(now time.Time) string {
	return j.sentence(now, j.said(), j.Phase(), j.WaitsFor())
}

func (t *temporalClient) scaleDown(ctx context.Context, id string) (Job, error) {
	e, status, result, err := ask[workflows.ScaleDownStatus, ScaleDownResult](ctx, t, id)
	if err != nil {
		return nil, err
	}
	if status != nil {
		e.Started = status.Started // of the first run, if it went on in another one
	}
	target, _ := jobs.ScaleDownNode.Target(id)
	return ScaleDown{Node: target.Node, Execution: e, Status: status, Result: result}, nil
}

func (s Status) writeScaleDowns(w io.Writer) {
	var rows [][]string
	for _, j := range s.ScaleDowns {
		since := j.waitsSince()
		if j.State != Running {
			since = j.Ended
		}
		rows = append(rows, []string{j.WorkflowID, j.Phase(), when(since, s.At), j.WaitsFor()})
	}
	table(w, []string{"SCALE-DOWN", "PHASE", "SINCE", "WAITS FOR"}, rows)
}

// lookScaleDown: somebody removes the node, and a job sees it through that.
func lookScaleDown(f Facts) []Obstacle {
	if f.ScaleDown == nil {
		return nil
	}
	return []Obstacle{{
		Name: "ScaleDown", Since: f.ScaleDown.Started, What: f.ScaleDown.Describe(f.At),
		Change: "it ends when the node is gone, or when nothing announces any more that it leaves; follow it: " +
			"`lockkeeper status " + f.ScaleDown.WorkflowID + " -w`",
	}}
}
