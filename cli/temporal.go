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
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/cli/history"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
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
		ID: id, TaskQueue: workflows.TaskQueue, StaticSummary: summary,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
	}
}

// StartUpdate implements Temporal. To be told that it should look does a running rollout no harm.
func (t *temporalClient) StartUpdate(ctx context.Context, namespace, name string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	id := jobs.UpdateOSDs.ID(namespace, name)
	o := options(id, "rollout of "+namespace+"/"+name)
	o.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING
	const why = "somebody asked for it"
	in := workflows.UpdateOSDsInput{CephOSD: namespace + "/" + name}
	_, err := t.client.SignalWithStartWorkflow(ctx, id, workflows.SignalOSDsChanged, why, o, jobs.UpdateOSDs.Type, in)
	return t.failed("start "+id, err)
}

// StartRestart implements Temporal.
func (t *temporalClient) StartRestart(ctx context.Context, in workflows.RestartOSDsInput) error {
	id, summary := jobs.RestartOSDs.ID(in.Namespace), "restart of the OSDs in "+in.Namespace
	return t.start(ctx, id, summary, jobs.RestartOSDs.Type, in)
}

// StartMigration implements Temporal.
func (t *temporalClient) StartMigration(ctx context.Context, ref activities.MonsRef, mode monplan.Mode) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	id := jobs.MigrateMons.ID(ref.Namespace, ref.Name)
	o := options(id, "mons of "+ref.String())
	o.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING
	in := workflows.MigrateMonsInput{CephMon: ref.String(), Migrate: true, OneLess: mode.OneLess}
	_, err := t.client.SignalWithStartWorkflow(ctx, id, workflows.SignalMigrate, mode, o, jobs.MigrateMons.Type, in)
	return t.failed("start "+id, err)
}

// planTimeout is how long a worker may take to look at mons of which one may just have died.
const planTimeout = time.Minute

// PlanMigration implements Temporal.
func (t *temporalClient) PlanMigration(
	ctx context.Context, in workflows.PlanMonsInput,
) (plan activities.MonPlan, err error) {
	ctx, cancel := context.WithTimeout(ctx, planTimeout)
	defer cancel()
	id := jobs.PlanMons.Prefix + in.CephMon
	o := options(id, "plan of "+in.CephMon)
	o.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_TERMINATE_EXISTING // it changes nothing
	o.WorkflowRunTimeout = planTimeout
	run, err := t.client.ExecuteWorkflow(ctx, o, jobs.PlanMons.Type, in)
	if err != nil {
		return plan, t.failed("start "+id, err)
	}
	if err = run.Get(ctx, &plan); errors.Is(err, context.DeadlineExceeded) {
		return plan, fmt.Errorf("%w for %s: is lockkeeper-worker running?", ErrNoWorker, id)
	}
	if err != nil {
		return plan, errors.New(reason(err))
	}
	return plan, nil
}

// answers has for each type of job what asks one, and decodes what it says.
var answers = map[string]func(*temporalClient, context.Context, string) (Job, error){
	jobs.DrainNode.Type:      (*temporalClient).drain,
	jobs.FenceNode.Type:      (*temporalClient).fence,
	jobs.ScaleDownNode.Type:  (*temporalClient).scaleDown,
	jobs.UpdateOSDs.Type:     (*temporalClient).rollout,
	jobs.RestartOSDs.Type:    (*temporalClient).rollout,
	jobs.RestartWaiting.Type: (*temporalClient).rollout,
	jobs.MigrateMons.Type:    (*temporalClient).migration,
}

// Job implements Temporal.
func (t *temporalClient) Job(ctx context.Context, id string) (Job, error) {
	j, _, ok := jobs.Parse(id)
	if !ok {
		return nil, ErrNoJob
	}
	return answers[j.Type](t, ctx, id)
}

func (t *temporalClient) drain(ctx context.Context, id string) (Job, error) {
	e, status, result, err := ask[workflows.DrainStatus, DrainResult](ctx, t, id)
	if err != nil {
		return nil, err
	}
	target, _ := jobs.DrainNode.Target(id)
	return Drain{Node: target.Node, Execution: e, Status: status, Result: result}, nil
}

func (t *temporalClient) rollout(ctx context.Context, id string) (Job, error) {
	e, status, result, err := ask[workflows.UpdateStatus, RolloutResult](ctx, t, id)
	if err != nil {
		return nil, err
	}
	if status != nil {
		e.Started = status.Started // of the first run, if it went on in another one
	}
	return Rollout{Execution: e, Status: status, Result: result}, nil
}

func (t *temporalClient) migration(ctx context.Context, id string) (Job, error) {
	e, status, result, err := ask[workflows.MigrateMonsStatus, MigrationResult](ctx, t, id)
	if err != nil {
		return nil, err
	}
	if status != nil {
		e.Started = status.Started // of the first run, if it went on in another one
	}
	return Migration{Execution: e, Status: status, Result: result}, nil
}

// lookUp asks for a job of a kind that is known. If there is none, or with an error, it is an empty one.
func lookUp[J Job](ctx context.Context, t Temporal, id string) (J, error) {
	job, err := t.Job(ctx, id)
	out, _ := job.(J)
	return out, err
}

// ask looks up the last run of a job, and has it say how it is, or how it ended.
func ask[S, R any](ctx context.Context, t *temporalClient, id string) (e Execution, status *S, result *R, err error) {
	described, err := t.describe(ctx, id)
	if err != nil {
		return e, nil, nil, err
	}
	info := described.GetWorkflowExecutionInfo()
	e = Execution{
		WorkflowID: id, RunID: info.GetExecution().GetRunId(), State: info.GetStatus().String(),
		Started: info.GetStartTime().AsTime(),
	}
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

func (t *temporalClient) describe(
	ctx context.Context, id string,
) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
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

// Running implements Temporal. The list of running workflows may lag behind: each is asked for by itself.
func (t *temporalClient) Running(ctx context.Context) ([]Job, error) {
	var types []string
	for _, j := range jobs.All {
		types = append(types, j.Type)
	}
	query := fmt.Sprintf("WorkflowType IN ('%s') AND ExecutionStatus = 'Running'", strings.Join(types, "', '"))
	listed, err := t.list(ctx, "the running jobs", query)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, info := range listed {
		ids = append(ids, info.GetExecution().GetWorkflowId())
	}
	slices.Sort(ids)
	found := make([]Job, len(ids))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, id := range ids {
		g.Go(func() (err error) {
			if found[i], err = t.Job(ctx, id); errors.Is(err, ErrNoJob) {
				return nil // or it is under an ID that no job of ours has
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(j Job) bool { return j == nil || j.execution().State != Running }), nil
}

// list asks Temporal for all workflow runs that a query selects; what says what for.
func (t *temporalClient) list(
	ctx context.Context, what, query string,
) (out []*workflowpb.WorkflowExecutionInfo, err error) {
	for page := []byte(nil); ; {
		list, err := t.listPage(ctx, query, page)
		if err != nil {
			return nil, t.failed("list "+what, err)
		}
		out = append(out, list.GetExecutions()...)
		if page = list.GetNextPageToken(); len(page) == 0 {
			return out, nil
		}
	}
}

func (t *temporalClient) listPage(
	ctx context.Context, query string, page []byte,
) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return t.client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Query: query, NextPageToken: page})
}

// Signal implements Temporal.
func (t *temporalClient) Signal(ctx context.Context, id, signal string, arg any) error {
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
		return fmt.Errorf("%s: Temporal at %s has no namespace %q (set by TEMPORAL_NAMESPACE)", what, t.address,
			noNamespace.Namespace)
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
		s := &Step{
			Name: a.GetActivityType().GetName(), Attempt: int(a.GetAttempt()),
			LastFailure: history.Cause(a.GetLastFailure()),
		}
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
