package cli

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// scalingDown is a scale-down that waits in the queue, with Karpenter's deadline near.
func scalingDown(node string) ScaleDown {
	status := workflows.ScaleDownStatus{
		JobStatus: workflows.JobStatus{
			Phase: workflows.PhaseLease, Step: 2, Steps: 4, Started: ago(5 * time.Minute), Since: ago(4 * time.Minute),
			WaitsFor: "the lease of node " + node + ": the lease: scale-down/node-b holds node node-b (tainted)",
		},
		Warning: "in less than ten minutes Karpenter removes the node",
	}
	return ScaleDown{
		Node: node, Status: &status,
		Execution: Execution{
			WorkflowID: jobs.ScaleDownNode.ID(node), RunID: "run", State: Running, Started: ago(5 * time.Minute),
		},
	}
}

// TestScaleDownIsTold: what a scale-down waits for, what it warns of, and how it ended.
func TestScaleDownIsTold(t *testing.T) {
	j := scalingDown("node-a")
	assert.Equal(t, "AcquiringLease 2/4", j.Phase())
	assert.Contains(t, j.WaitsFor(), "scale-down/node-b holds node node-b")
	assert.Contains(t, j.WaitsFor(), "less than ten minutes")
	assert.Equal(t, ago(4*time.Minute), j.waitsSince())
	assert.False(t, j.heard(j, jobs.SignalPause, ""))
	j.Status.Paused = true
	assert.True(t, j.heard(j, jobs.SignalPause, ""))
	assert.Contains(t, j.Phase(), "paused")

	w := newWorld()
	w.jobs[j.WorkflowID] = []Job{scalingDown("node-a")}
	command, out, _ := w.command()
	s, err := command.Status(t.Context(), "")
	require.NoError(t, err)
	s.Write(out)
	assert.Contains(t, out.String(), "SCALE-DOWN")
	assert.Contains(t, out.String(), "scale-down/node-a")
	of, err := command.JobStatus(t.Context(), "scale-down/node-a")
	require.NoError(t, err)
	assert.Len(t, of.ScaleDowns, 1)

	j.State, j.Status = "Completed", nil
	for outcome, want := range map[string]bool{
		workflows.OutcomeGone: true, workflows.OutcomeStayed: true, workflows.OutcomeExpired: true,
		workflows.OutcomeRevoked: true, workflows.OutcomeAborted: false, workflows.OutcomeFailed: false,
	} {
		j.Result = &ScaleDownResult{workflows.ScaleDownNodeResult{Outcome: outcome, Turns: 2, Took: time.Hour}}
		assert.Equal(t, want, j.Succeeded(), outcome)
		assert.Equal(t, outcome, j.Phase())
		if want {
			assert.Contains(t, j.done(), outcome+": ")
			assert.Contains(t, j.done(), "2 times")
		}
	}
	data, err := json.Marshal(j.Result)
	require.NoError(t, err)
	assert.True(t, bytes.Contains(data, []byte(`"took":"1h0m0s"`)), string(data))
}
