package worker

import (
	"context"
	"errors"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

type temporalJobs struct{ c client.Client }

// NewTemporal answers the activities' questions about workflows by a client.
func NewTemporal(c client.Client) Temporal { return temporalJobs{c} }

// AwaitEnd implements activities.Jobs by Temporal's long poll for a workflow's result. It follows the chain from its
// present run: the first one is forgotten when its retention has passed, which may be while the job still waits.
func (t temporalJobs) AwaitEnd(ctx context.Context, workflowID, runID string) (string, error) {
	now, err := t.c.DescribeWorkflowExecution(ctx, workflowID, "")
	if err != nil {
		return how(err)
	}
	run := now.GetWorkflowExecutionInfo().GetExecution().GetRunId()
	if first := now.GetWorkflowExecutionInfo().GetFirstRunId(); first != runID {
		run = runID // another workflow by now, or a server that does not tell
	}
	return how(t.c.GetWorkflow(ctx, workflowID, run).Get(ctx, nil))
}

// TellMons implements activities.Migrations.
func (t temporalJobs) TellMons(ctx context.Context, ref activities.MonsRef, reason string) error {
	id := jobs.MigrateMons.ID(ref.Namespace, ref.Name)
	_, err := t.c.SignalWithStartWorkflow(ctx, id, workflows.SignalMonsChanged, reason, client.StartWorkflowOptions{
		ID: id, TaskQueue: workflows.TaskQueue, StaticSummary: "mons of " + ref.String(),
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
	}, jobs.MigrateMons.Type, workflows.MigrateMonsInput{CephMon: ref.String()})
	return err
}

// how a workflow ended, by the error with which its result came.
func how(err error) (string, error) {
	var (
		notFound *serviceerror.NotFound
		invalid  *serviceerror.InvalidArgument
		ended    *temporal.WorkflowExecutionError
	)
	switch {
	case err == nil:
		return "completed", nil
	case errors.As(err, &notFound):
		return "unknown to Temporal", nil // its retention has passed, so it has ended
	case errors.As(err, &invalid):
		return "unknown to Temporal", nil // no run has such an ID, and none ever had
	case errors.As(err, &ended):
		return ended.Unwrap().Error(), nil
	default:
		return "", err
	}
}

// RequestLease implements activities.Keepers. Update-with-start: a keeper that is not running is started with the
// claim.
func (t temporalJobs) RequestLease(ctx context.Context, cluster storage.ClusterKey, claim lease.Claim) error {
	return t.ask(ctx, cluster, workflows.UpdateRequestLease, workflows.LeaseRequest{Claim: claim})
}

// RequestFence implements activities.Keepers.
func (t temporalJobs) RequestFence(
	ctx context.Context, cluster storage.ClusterKey, target fencing.Target, healing bool,
) error {
	return t.ask(ctx, cluster, workflows.UpdateRequestFence, workflows.FenceRequest{Target: target, Healing: healing})
}

func (t temporalJobs) ask(ctx context.Context, cluster storage.ClusterKey, update string, request any) error {
	start := t.c.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
		ID: workflows.KeeperID(cluster), TaskQueue: workflows.TaskQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, jobs.Keeper.Type, workflows.NewKeeperInput(cluster))
	h, err := t.c.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: start,
		UpdateOptions: client.UpdateWorkflowOptions{
			UpdateName: update, Args: []any{request},
			WaitForStage: client.WorkflowUpdateStageCompleted,
		},
	})
	if err != nil {
		return err
	}
	// A request that the keeper rejects comes back as an error that is not to be retried.
	return h.Get(ctx, nil)
}
