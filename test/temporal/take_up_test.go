package temporal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/starter"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TestOnlyATerminatedDrainIsTakenUp: one that runs needs nobody, and one that was aborted was told to end.
func TestOnlyATerminatedDrainIsTakenUp(t *testing.T) {
	s := newStage(t, sim.Options{})
	s.await("rest", func() bool { return s.keeper().Decision.Mode == budget.ModeDefault })
	temporal := starter.NewTemporal(s.client)
	id := jobs.DrainNode.ID("node-a")
	in := workflows.DrainNodeInput{Node: "node-a", Policy: sim.Key.String(), Reason: "a test", Observe: true}
	takesUp := func(want bool) {
		t.Helper()
		began, err := temporal.TakeUpDrain(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, want, began)
	}
	status := func() enumspb.WorkflowExecutionStatus {
		d, err := s.client.DescribeWorkflowExecution(t.Context(), id, "")
		require.NoError(t, err)
		return d.GetWorkflowExecutionInfo().GetStatus()
	}
	takesUp(false) // there has never been one
	s.PersonCordons("node-a", true)
	require.NoError(t, temporal.StartDrain(t.Context(), in))
	takesUp(false)
	require.NoError(t, s.client.TerminateWorkflow(t.Context(), id, "", "a test"))
	takesUp(true)
	takesUp(false)
	s.signal(id, jobs.SignalAbort, nil)
	require.Eventually(t, func() bool { return status() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING }, patience,
		50*time.Millisecond)
	takesUp(false)
}
