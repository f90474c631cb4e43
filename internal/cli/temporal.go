package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// Time limits of one request. A query needs a worker; without one Temporal lets it wait for as long as it may.
const (
	requestTimeout = 5 * time.Second
	queryTimeout   = 3 * time.Second
)

// NewTemporal asks Temporal by an SDK client. address is for messages.
func NewTemporal(c client.Client, address string) Temporal {
	return &temporalClient{client: c, address: address}
}

type temporalClient struct {
	client  client.Client
	address string
}

// StartDrain implements Temporal.
func (t *temporalClient) StartDrain(ctx context.Context, in workflows.DrainNodeInput) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := t.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: workflows.DrainID(in.Node), TaskQueue: workflows.TaskQueue, StaticSummary: "drain of " + in.Node,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,

		WorkflowExecutionErrorWhenAlreadyStarted: true,
	}, workflows.DrainNodeType, in)
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &started) {
		return ErrRuns
	}
	return t.failed("start "+workflows.DrainID(in.Node), err)
}

// Drain implements Temporal.
func (t *temporalClient) Drain(ctx context.Context, node string) (Job, error) {
	id := workflows.DrainID(node)
	described, err := t.describe(ctx, id)
	if err != nil {
		return Job{}, err
	}
	info := described.GetWorkflowExecutionInfo()
	job := Job{
		Node: node, WorkflowID: id, RunID: info.GetExecution().GetRunId(), State: info.GetStatus().String(),
		Started: info.GetStartTime().AsTime(),
	}
	if job.State != Running {
		job.Ended = info.GetCloseTime().AsTime()
		t.outcome(ctx, &job)
		return job, nil
	}
	job.Step = stepOf(described.GetPendingActivities())
	var status workflows.DrainStatus
	if err := t.query(ctx, id, job.RunID, &status); err != nil {
		job.Silent = err.Error()
	} else {
		job.Status = &status
	}
	return job, nil
}

func (t *temporalClient) describe(ctx context.Context, id string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	described, err := t.client.DescribeWorkflowExecution(ctx, id, "")
	if notFound(err) {
		return nil, ErrNoJob
	}
	return described, t.failed("look up "+id, err)
}

// outcome reads the result of a job that has ended.
func (t *temporalClient) outcome(ctx context.Context, job *Job) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var result workflows.DrainNodeResult
	if err := t.client.GetWorkflow(ctx, job.WorkflowID, job.RunID).Get(ctx, &result); err != nil {
		job.Failure = reason(err)
		return
	}
	job.Result = &result
}

// Drains implements Temporal.
func (t *temporalClient) Drains(ctx context.Context) ([]Job, error) {
	var nodes []string
	for page := []byte(nil); ; {
		list, err := t.listDrains(ctx, page)
		if err != nil {
			return nil, err
		}
		for _, info := range list.GetExecutions() {
			// A drain under another ID is not one of ours to speak of.
			if node, ok := workflows.DrainedNode(info.GetExecution().GetWorkflowId()); ok {
				nodes = append(nodes, node)
			}
		}
		if page = list.GetNextPageToken(); len(page) == 0 {
			break
		}
	}
	slices.Sort(nodes)
	jobs := make([]Job, len(nodes))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, node := range nodes {
		g.Go(func() (err error) {
			if jobs[i], err = t.Drain(ctx, node); errors.Is(err, ErrNoJob) {
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	// The list may lag behind.
	return slices.DeleteFunc(jobs, func(j Job) bool { return j.State != Running }), nil
}

func (t *temporalClient) listDrains(ctx context.Context, page []byte) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := t.client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", workflows.DrainNodeType), NextPageToken: page,
	})
	return list, t.failed("list the running drains", err)
}

// Signal implements Temporal.
func (t *temporalClient) Signal(ctx context.Context, node, signal string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := t.client.SignalWorkflow(ctx, workflows.DrainID(node), "", signal, nil)
	if notFound(err) {
		return ErrNoJob
	}
	return t.failed("signal "+workflows.DrainID(node), err)
}

// Keeper implements Temporal.
func (t *temporalClient) Keeper(ctx context.Context, cluster storage.ClusterKey) (workflows.KeeperStatus, error) {
	var out workflows.KeeperStatus
	err := t.query(ctx, workflows.KeeperID(cluster), "", &out)
	return out, err
}

func (t *temporalClient) query(ctx context.Context, id, run string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	answer, err := t.client.QueryWorkflow(ctx, id, run, workflows.QueryStatus)
	var deadline *serviceerror.DeadlineExceeded
	var idle *serviceerror.FailedPrecondition
	switch {
	case err == nil:
		return answer.Get(into)
	case notFound(err):
		return fmt.Errorf("%s %w", id, ErrNotRunning)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &deadline), errors.As(err, &idle):
		return fmt.Errorf("%w for %s: is lockkeeper-worker running?", ErrNoWorker, id)
	default:
		return t.failed("ask "+id, err)
	}
}

// failed says where Temporal was looked for when it did not answer.
func (t *temporalClient) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	var away *serviceerror.Unavailable
	var late *serviceerror.DeadlineExceeded
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &away) || errors.As(err, &late) {
		return fmt.Errorf("%s: %w at %s (set by TEMPORAL_ADDRESS)", what, ErrAway, t.address)
	}
	if strings.HasPrefix(err.Error(), "failed reaching server") { // something else answers there
		return fmt.Errorf("%s: %w at %s (set by TEMPORAL_ADDRESS): %s", what, ErrAway, t.address, err.Error())
	}
	var noNamespace *serviceerror.NamespaceNotFound
	if errors.As(err, &noNamespace) {
		return fmt.Errorf("%s: Temporal at %s has no namespace %q (set by TEMPORAL_NAMESPACE)", what, t.address, noNamespace.Namespace)
	}
	return fmt.Errorf("%s: %w", what, err)
}

func notFound(err error) bool {
	var missing *serviceerror.NotFound
	return errors.As(err, &missing)
}

// stepOf is the activity that has most to tell: one that failed before, or one that reports its progress.
func stepOf(pending []*workflowpb.PendingActivityInfo) *Step {
	var out *Step
	for _, a := range pending {
		s := &Step{Name: a.GetActivityType().GetName(), Attempt: int(a.GetAttempt()), LastFailure: cause(a.GetLastFailure()), Eviction: eviction(a.GetHeartbeatDetails())}
		if s.LastFailure == "" && s.Eviction == nil {
			continue
		}
		if out == nil || out.LastFailure == "" {
			out = s
		}
	}
	return out
}

// cause is the message of the failure that began it all, without the layers around it.
func cause(f *failurepb.Failure) string {
	if f == nil {
		return ""
	}
	if f.GetApplicationFailureInfo() == nil && f.GetCause() != nil {
		return cause(f.GetCause())
	}
	return f.GetMessage()
}

func eviction(details *commonpb.Payloads) *activities.EvictionProgress {
	var out activities.EvictionProgress
	if details == nil || converter.GetDefaultDataConverter().FromPayloads(details, &out) != nil || out.Total == 0 {
		return nil
	}
	return &out
}

// reason is why a workflow failed, in its own words.
func reason(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	var ended *temporal.WorkflowExecutionError
	if errors.As(err, &ended) && ended.Unwrap() != nil {
		return ended.Unwrap().Error()
	}
	return strings.TrimPrefix(err.Error(), "workflow execution error ")
}
