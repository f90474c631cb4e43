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
	"github.com/lockkeeper/lockkeeper/internal/jobs"
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
	return t.start(ctx, jobs.DrainNode.ID(in.Node), "drain of "+in.Node, jobs.DrainNode.Type, in)
}

// start starts a job of which there is only one at a time.
func (t *temporalClient) start(ctx context.Context, id, summary, workflowType string, in any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	o := options(id, summary)
	o.WorkflowIDConflictPolicy, o.WorkflowExecutionErrorWhenAlreadyStarted = enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL, true
	_, err := t.client.ExecuteWorkflow(ctx, o, workflowType, in)
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &started) {
		return ErrRuns
	}
	return t.failed("start "+id, err)
}

func options(id, summary string) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID: id, TaskQueue: workflows.TaskQueue, StaticSummary: summary, WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
	}
}

// Drain implements Temporal.
func (t *temporalClient) Drain(ctx context.Context, node string) (Drain, error) {
	job := Drain{Node: node}
	var err error
	job.Execution, job.Status, job.Result, err = ask[workflows.DrainStatus, DrainResult](ctx, t, jobs.DrainNode.ID(node))
	return job, err
}

// ask looks up the last run of a job, and has it say how it is, or how it ended.
func ask[S, R any](ctx context.Context, t *temporalClient, id string) (e Execution, status *S, result *R, err error) {
	described, err := t.describe(ctx, id)
	if err != nil {
		return e, nil, nil, err
	}
	info := described.GetWorkflowExecutionInfo()
	e = Execution{WorkflowID: id, RunID: info.GetExecution().GetRunId(), State: info.GetStatus().String(), Started: info.GetStartTime().AsTime()}
	if e.State != Running {
		e.Ended, result = info.GetCloseTime().AsTime(), new(R)
		if e.Failure = t.outcome(ctx, id, e.RunID, result); e.Failure != "" {
			result = nil
		}
		return e, nil, result, nil
	}
	e.Step, status = stepOf(described.GetPendingActivities()), new(S)
	if err := t.query(ctx, id, e.RunID, status); err != nil {
		e.Silent, status = err.Error(), nil
	}
	return e, status, nil, nil
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

// outcome reads the result of a job that has ended, or says why it has none.
func (t *temporalClient) outcome(ctx context.Context, id, run string, result any) (failure string) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := t.client.GetWorkflow(ctx, id, run).Get(ctx, result); err != nil {
		return reason(err)
	}
	return ""
}

// Drains implements Temporal.
func (t *temporalClient) Drains(ctx context.Context) ([]Drain, error) {
	ids, err := t.runningIDs(ctx, jobs.DrainNode.Type)
	if err != nil {
		return nil, err
	}
	var nodes []string
	for _, id := range ids {
		// A drain under another ID is not one of ours to speak of.
		if target, ok := jobs.DrainNode.Target(id); ok {
			nodes = append(nodes, target.Node)
		}
	}
	return thatRun(ctx, nodes, t.Drain)
}

// thatRun asks for some jobs, and returns those that run: the list of them may lag behind.
func thatRun[J Job](ctx context.Context, names []string, one func(context.Context, string) (J, error)) ([]J, error) {
	slices.Sort(names)
	jobs := make([]J, len(names))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, name := range names {
		g.Go(func() (err error) {
			if jobs[i], err = one(ctx, name); errors.Is(err, ErrNoJob) {
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(jobs, func(j J) bool { return j.execution().State != Running }), nil
}

// runningIDs lists the IDs of the running workflows of some types.
func (t *temporalClient) runningIDs(ctx context.Context, types ...string) (ids []string, err error) {
	for page := []byte(nil); ; {
		list, err := t.listRunning(ctx, types, page)
		if err != nil {
			return nil, err
		}
		for _, info := range list.GetExecutions() {
			ids = append(ids, info.GetExecution().GetWorkflowId())
		}
		if page = list.GetNextPageToken(); len(page) == 0 {
			return ids, nil
		}
	}
}

func (t *temporalClient) listRunning(ctx context.Context, types []string, page []byte) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := t.client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("WorkflowType IN ('%s') AND ExecutionStatus = 'Running'", strings.Join(types, "', '")), NextPageToken: page,
	})
	return list, t.failed("list the running jobs", err)
}

// Signal implements Temporal.
func (t *temporalClient) Signal(ctx context.Context, node, signal string) error {
	return t.signal(ctx, jobs.DrainNode.ID(node), signal, nil)
}

func (t *temporalClient) signal(ctx context.Context, id, signal string, arg any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := t.client.SignalWorkflow(ctx, id, "", signal, arg)
	if notFound(err) {
		return ErrNoJob
	}
	return t.failed("signal "+id, err)
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
		s := &Step{Name: a.GetActivityType().GetName(), Attempt: int(a.GetAttempt()), LastFailure: cause(a.GetLastFailure())}
		s.progress(a.GetHeartbeatDetails())
		if s.LastFailure == "" && s.Eviction == nil && s.Arrival == nil {
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

// awaitOSDs is the activity that waits for the OSDs of a batch, by the name under which it is registered.
const awaitOSDs = "AwaitOSDs"

// progress reads the heartbeat of an activity: whose it is says what is in it.
func (s *Step) progress(details *commonpb.Payloads) {
	if details == nil {
		return
	}
	read := converter.GetDefaultDataConverter().FromPayloads
	if s.Name == awaitOSDs {
		var a activities.Arrival
		if read(details, &a) == nil && len(a.Waiting) > 0 {
			s.Arrival = &a
		}
		return
	}
	var e activities.EvictionProgress
	if read(details, &e) == nil && e.Total > 0 {
		s.Eviction = &e
	}
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
