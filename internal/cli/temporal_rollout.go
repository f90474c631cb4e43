package cli

import (
	"context"
	"errors"
	"slices"

	enumspb "go.temporal.io/api/enums/v1"
	"golang.org/x/sync/errgroup"

	"github.com/lockkeeper/lockkeeper/workflows"
)

// StartUpdate implements Temporal. To be told that it should look does a running rollout no harm.
func (t *temporalClient) StartUpdate(ctx context.Context, namespace, name string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	id := workflows.UpdateOSDsID(namespace, name)
	o := options(id, "rollout of "+namespace+"/"+name)
	o.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING
	in := workflows.UpdateOSDsInput{CephOSD: namespace + "/" + name}
	_, err := t.client.SignalWithStartWorkflow(ctx, id, workflows.SignalOSDsChanged, "somebody asked for it", o, workflows.UpdateOSDsType, in)
	return t.failed("start "+id, err)
}

// StartRestart implements Temporal.
func (t *temporalClient) StartRestart(ctx context.Context, in workflows.RestartOSDsInput) error {
	return t.start(ctx, workflows.RestartOSDsID(in.Namespace), "restart of the OSDs in "+in.Namespace, workflows.RestartOSDsType, in)
}

// Rollout implements Temporal.
func (t *temporalClient) Rollout(ctx context.Context, id string) (Rollout, error) {
	described, err := t.describe(ctx, id)
	if err != nil {
		return Rollout{}, err
	}
	info := described.GetWorkflowExecutionInfo()
	r := Rollout{WorkflowID: id, RunID: info.GetExecution().GetRunId(), State: info.GetStatus().String(), Started: info.GetStartTime().AsTime()}
	if r.State != Running {
		r.Ended = info.GetCloseTime().AsTime()
		var result workflows.UpdateOSDsResult
		if r.Failure = t.outcome(ctx, id, r.RunID, &result); r.Failure == "" {
			r.Result = &result
		}
		return r, nil
	}
	r.Step = stepOf(described.GetPendingActivities())
	var status workflows.UpdateStatus
	if err := t.query(ctx, id, r.RunID, &status); err != nil {
		r.Silent = err.Error()
	} else {
		r.Status = &status
		r.Started = status.Started // of the first run, if it went on in another one
	}
	return r, nil
}

// Rollouts implements Temporal.
func (t *temporalClient) Rollouts(ctx context.Context) ([]Rollout, error) {
	ids, err := t.running(ctx, workflows.UpdateOSDsType, workflows.RestartOSDsType)
	if err != nil {
		return nil, err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool {
		_, _, ok := workflows.RolledOut(id)
		return !ok
	})
	slices.Sort(ids)
	out := make([]Rollout, len(ids))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, id := range ids {
		g.Go(func() (err error) {
			if out[i], err = t.Rollout(ctx, id); errors.Is(err, ErrNoJob) {
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(out, func(r Rollout) bool { return r.State != Running }), nil
}

// SignalRollout implements Temporal.
func (t *temporalClient) SignalRollout(ctx context.Context, id, signal string, arg any) error {
	return t.signal(ctx, id, signal, arg)
}
