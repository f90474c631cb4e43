package starter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// Temporal is all that the watcher asks of Temporal. Every call may be repeated.
type Temporal interface {
	// SignalKeeper signals the keeper of a storage cluster, and starts it first if it does not run.
	SignalKeeper(ctx context.Context, cluster storage.ClusterKey, hint workflows.Hint) error
	// EnsureKeeper starts the keeper if it does not run, and otherwise leaves no trace.
	EnsureKeeper(ctx context.Context, cluster storage.ClusterKey) error
	// RestartKeeper ends a keeper, wherever it is, and starts another one.
	RestartKeeper(ctx context.Context, cluster storage.ClusterKey) error
	// Kept asks the keeper whether it keeps the policy's status up to date. That it does not run is an answer; an error
	// means that nobody answered, ErrCannotGoOn that the worker cannot carry on with what the keeper has done so far.
	Kept(ctx context.Context, cluster storage.ClusterKey) (workflows.Kept, error)
	// StartDrain starts the drain of a node, unless it runs.
	StartDrain(ctx context.Context, in workflows.DrainNodeInput) error
	// TakeUpDrain starts the drain of a node if the last one was terminated, and tells whether it did. One that ended in
	// any other way was told to, or has undone what it did.
	TakeUpDrain(ctx context.Context, in workflows.DrainNodeInput) (began bool, err error)
	// SignalScaleDown tells the scale-down of a node how it leaves, and starts it first if it does not run.
	SignalScaleDown(ctx context.Context, in workflows.ScaleDownNodeInput, reason string) error
	// SignalFence tells the fence of a node to look, and starts it first, if start, when it does not run.
	SignalFence(ctx context.Context, in workflows.FenceNodeInput, reason string, start bool) error
	// SignalRollout tells the rollout of a CephOSD to look, and starts it first if it does not run.
	SignalRollout(ctx context.Context, namespace, name, reason string) error
	// SignalWaiting tells the restart of what waits to look. start says whether it is started first if it does not run.
	SignalWaiting(ctx context.Context, cluster storage.ClusterKey, reason string, start bool) error
	// SignalMons tells the job of a CephMon to look, and starts it first if it does not run.
	SignalMons(ctx context.Context, namespace, name, reason string) error
}

// callTimeout bounds one call. The SDK retries within it, so an outage shorter than this goes unnoticed.
const callTimeout = 10 * time.Second

// ErrCannotGoOn means that a worker has failed three times or more at the keeper's next step. It is of another version
// than the worker that took the steps before, and would have taken others; or it has a bug, or died each time.
var ErrCannotGoOn = errors.New("the worker cannot carry on with what the keeper has done so far")

type temporalClient struct{ client client.Client }

// NewTemporal returns a Temporal that uses an SDK client.
func NewTemporal(c client.Client) Temporal { return temporalClient{client: c} }

func (t temporalClient) SignalKeeper(ctx context.Context, cluster storage.ClusterKey, hint workflows.Hint) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	opts := keeperOptions(cluster)
	if _, err := t.client.SignalWithStartWorkflow(ctx, opts.ID, workflows.SignalStorageChanged, hint, opts,
		jobs.Keeper.Type, workflows.NewKeeperInput(cluster)); err != nil {
		return failed(ctx, "signal "+opts.ID, err)
	}
	return nil
}

func (t temporalClient) EnsureKeeper(ctx context.Context, cluster storage.ClusterKey) error {
	return t.start(ctx, keeperOptions(cluster), jobs.Keeper.Type, workflows.NewKeeperInput(cluster))
}

func (t temporalClient) RestartKeeper(ctx context.Context, cluster storage.ClusterKey) error {
	opts := keeperOptions(cluster)
	opts.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_TERMINATE_EXISTING
	return t.start(ctx, opts, jobs.Keeper.Type, workflows.NewKeeperInput(cluster))
}

// keptWithin bounds the question whether a status is kept. A worker that is replaced by another one costs up to 5 s of
// it: only then does Temporal ask the other one.
const keptWithin = 8 * time.Second

// cannotReplay is in the answer of a worker whose code does not fit a history. Temporal itself says that a workflow is
// not ready only after several attempts at its next task, and until then has workers answer.
const cannotReplay = "[TMPRL1100]"

func (t temporalClient) Kept(ctx context.Context, cluster storage.ClusterKey) (workflows.Kept, error) {
	ctx, cancel := context.WithTimeout(ctx, keptWithin)
	defer cancel()
	id := workflows.KeeperID(cluster)
	r, err := t.client.QueryWorkflowWithOptions(ctx, &client.QueryWorkflowWithOptionsRequest{
		// or the past would answer
		WorkflowID: id, QueryType: workflows.QueryKept, QueryRejectCondition: enumspb.QUERY_REJECT_CONDITION_NOT_OPEN,
	})
	var gone *serviceerror.NotFound
	var refused *serviceerror.QueryFailed
	var idle *serviceerror.FailedPrecondition
	var unavailable *serviceerror.Unavailable
	var late *serviceerror.DeadlineExceeded
	var failing *serviceerror.WorkflowNotReady
	switch {
	case errors.As(err, &gone), err == nil && r.QueryRejected != nil:
		return workflows.Kept{Why: id + " does not run"}, nil
	case errors.As(err, &refused) && strings.Contains(err.Error(), "unknown queryType"):
		return workflows.Kept{OK: true}, nil // an older worker, which is at work all the same
	case errors.As(err, &failing), errors.As(err, &refused) && strings.Contains(err.Error(), cannotReplay):
		return workflows.Kept{}, fmt.Errorf("%s: %w", id, ErrCannotGoOn)
	case errors.As(err, &unavailable):
		return workflows.Kept{}, fmt.Errorf("Temporal does not answer: %w", err)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &late), ctx.Err() != nil, errors.As(err, &idle):
		return workflows.Kept{}, t.silent()
	case err != nil:
		return workflows.Kept{}, fmt.Errorf("ask %s: %w", id, err)
	}
	var out workflows.Kept
	return out, r.QueryResult.Get(&out)
}

// silent says who does not answer: Temporal itself, or its workers.
func (t temporalClient) silent() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := t.client.CheckHealth(ctx, nil); err != nil {
		return errors.New("Temporal does not answer")
	}
	return errors.New("no worker answers")
}

func (t temporalClient) StartDrain(ctx context.Context, in workflows.DrainNodeInput) error {
	summary := "observe the drain of " + in.Node
	if !in.Observe {
		summary = "drain of " + in.Node
	}
	return t.start(ctx, options(jobs.DrainNode.ID(in.Node), summary), jobs.DrainNode.Type, in)
}

func (t temporalClient) TakeUpDrain(ctx context.Context, in workflows.DrainNodeInput) (began bool, err error) {
	id := jobs.DrainNode.ID(in.Node)
	asking, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	last, err := t.client.DescribeWorkflowExecution(asking, id, "")
	var never *serviceerror.NotFound
	if errors.As(err, &never) {
		return false, nil
	}
	if err != nil {
		return false, failed(asking, "describe "+id, err)
	}
	if last.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED {
		return false, nil
	}
	return true, t.StartDrain(ctx, in)
}

func (t temporalClient) SignalFence(
	ctx context.Context, in workflows.FenceNodeInput, reason string, start bool,
) error {
	opts := options(jobs.FenceNode.ID(in.Node), "fencing of "+in.Node)
	if !start {
		return t.tell(ctx, opts.ID, workflows.SignalFenceChanged, reason)
	}
	return t.tellOrStart(ctx, workflows.SignalFenceChanged, reason, opts, jobs.FenceNode.Type, in)
}

func (t temporalClient) SignalScaleDown(ctx context.Context, in workflows.ScaleDownNodeInput, reason string) error {
	opts := options(jobs.ScaleDownNode.ID(in.Node), "scale-down of "+in.Node)
	return t.tellOrStart(ctx, workflows.SignalNodeLeaving, reason, opts, jobs.ScaleDownNode.Type, in)
}

func (t temporalClient) SignalRollout(ctx context.Context, namespace, name, reason string) error {
	opts := options(jobs.UpdateOSDs.ID(namespace, name), "rollout of "+namespace+"/"+name)
	return t.tellOrStart(ctx, workflows.SignalOSDsChanged, reason, opts, jobs.UpdateOSDs.Type,
		workflows.UpdateOSDsInput{CephOSD: namespace + "/" + name})
}

func (t temporalClient) SignalWaiting(
	ctx context.Context, cluster storage.ClusterKey, reason string, start bool,
) error {
	opts := options(jobs.RestartWaiting.ID(cluster.Namespace, cluster.Name), "restart of what waits in "+cluster.String())
	if !start {
		return t.tell(ctx, opts.ID, workflows.SignalOSDsChanged, reason)
	}
	return t.tellOrStart(ctx, workflows.SignalOSDsChanged, reason, opts, jobs.RestartWaiting.Type,
		workflows.RestartWaitingInput{Policy: cluster.String()})
}

func (t temporalClient) SignalMons(ctx context.Context, namespace, name, reason string) error {
	opts := options(jobs.MigrateMons.ID(namespace, name), "mons of "+namespace+"/"+name)
	return t.tellOrStart(ctx, workflows.SignalMonsChanged, reason, opts, jobs.MigrateMons.Type,
		workflows.MigrateMonsInput{CephMon: namespace + "/" + name})
}

// tell signals a job. One that does not run needs to hear nothing.
func (t temporalClient) tell(ctx context.Context, id, signal, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := t.client.SignalWorkflow(ctx, id, "", signal, reason)
	var gone *serviceerror.NotFound
	if err == nil || errors.As(err, &gone) {
		return nil
	}
	return failed(ctx, "signal "+id, err)
}

// tellOrStart signals a job, and starts it first if it does not run.
func (t temporalClient) tellOrStart(
	ctx context.Context, signal, reason string, opts client.StartWorkflowOptions, workflowType string, in any,
) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := t.client.SignalWithStartWorkflow(ctx, opts.ID, signal, reason, opts, workflowType, in); err != nil {
		return failed(ctx, "signal "+opts.ID, err)
	}
	return nil
}

func (t temporalClient) start(
	ctx context.Context, opts client.StartWorkflowOptions, workflowType string, in any,
) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := t.client.ExecuteWorkflow(ctx, opts, workflowType, in); err != nil {
		return failed(ctx, "start "+opts.ID, err)
	}
	return nil
}

// failed names the cause. The SDK retries until time is over, and then knows only that it is.
func failed(ctx context.Context, what string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return fmt.Errorf("%s: Temporal does not answer: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

func keeperOptions(cluster storage.ClusterKey) client.StartWorkflowOptions {
	return options(workflows.KeeperID(cluster), "keeper of "+cluster.String())
}

// options start a workflow of which there is only one with this ID at a time, and any number one after the other.
func options(id, summary string) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID: id, TaskQueue: workflows.TaskQueue, StaticSummary: summary,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
	}
}
