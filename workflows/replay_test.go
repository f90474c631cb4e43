package workflows_test

import (
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TestReplay replays every history in testdata, each recorded in the lab by hack/record-histories.sh. A change of a
// workflow that cannot go on with what an older one began fails here, before it is released. Histories of released
// versions stay.
func TestReplay(t *testing.T) {
	histories, err := filepath.Glob(filepath.Join("testdata", "*.json.gz"))
	require.NoError(t, err)
	require.NotEmpty(t, histories, "no history to replay")
	for _, file := range histories {
		t.Run(filepath.Base(file), func(t *testing.T) {
			r, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DisableDeadlockDetection: true})
			require.NoError(t, err)
			for name, w := range workflows.ByType {
				r.RegisterWorkflowWithOptions(w, workflow.RegisterOptions{Name: name})
			}
			h := history(t, file)
			id := h.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetWorkflowId()
			require.NoError(t, r.ReplayWorkflowHistoryWithOptions(nil, h,
				worker.ReplayWorkflowHistoryOptions{OriginalExecution: workflow.Execution{ID: id}}))
		})
	}
}

// TestByType: every job that the registry names has its workflow.
func TestByType(t *testing.T) {
	for _, j := range append([]*jobs.Job{jobs.Keeper}, jobs.All...) {
		require.Contains(t, workflows.ByType, j.Type)
	}
}

func history(t *testing.T, file string) *historypb.History {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	h, err := client.HistoryFromJSON(z, client.HistoryJSONOptions{})
	require.NoError(t, err)
	return h
}
