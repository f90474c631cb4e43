package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"

	"github.com/lockkeeper/lockkeeper/cli/history"
)

// recordTimeout bounds the reading of one run's history, which may be many pages.
const recordTimeout = 30 * time.Second

// Runs implements Temporal. Temporal's list may lag behind by a moment, so the present run is asked for by itself.
func (t *temporalClient) Runs(ctx context.Context, workflowID string) ([]RunInfo, error) {
	var out []RunInfo
	add := func(info *workflowpb.WorkflowExecutionInfo) {
		run := RunInfo{RunID: info.GetExecution().GetRunId(), Started: info.GetStartTime().AsTime()}
		if info.GetCloseTime() != nil {
			run.Ended = info.GetCloseTime().AsTime()
		}
		if !slices.ContainsFunc(out, func(r RunInfo) bool { return r.RunID == run.RunID }) {
			out = append(out, run)
		}
	}
	described, err := t.describe(ctx, workflowID)
	if err != nil {
		return nil, err
	}
	add(described.GetWorkflowExecutionInfo())
	runs, err := t.list(ctx, "the runs of "+workflowID, fmt.Sprintf("WorkflowId = '%s'", workflowID))
	if err != nil {
		return nil, err
	}
	for _, info := range runs {
		add(info)
	}
	slices.SortFunc(out, func(a, b RunInfo) int { return b.Started.Compare(a.Started) })
	return out, nil
}

// Record implements Temporal.
func (t *temporalClient) Record(ctx context.Context, workflowID, runID string) (history.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	run := history.Run{WorkflowID: workflowID}
	for events := t.client.GetWorkflowHistory(ctx, workflowID, runID, false,
		enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		e, err := events.Next()
		if err != nil {
			return run, t.failed("read the history of "+workflowID, err)
		}
		run.Events = append(run.Events, e)
	}
	return run, nil
}
