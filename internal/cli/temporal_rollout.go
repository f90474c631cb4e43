package cli

import (
	"context"
	"slices"

	enumspb "go.temporal.io/api/enums/v1"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// StartUpdate implements Temporal. To be told that it should look does a running rollout no harm.
func (t *temporalClient) StartUpdate(ctx context.Context, namespace, name string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	id := jobs.UpdateOSDs.ID(namespace, name)
	o := options(id, "rollout of "+namespace+"/"+name)
	o.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING
	in := workflows.UpdateOSDsInput{CephOSD: namespace + "/" + name}
	_, err := t.client.SignalWithStartWorkflow(ctx, id, workflows.SignalOSDsChanged, "somebody asked for it", o, jobs.UpdateOSDs.Type, in)
	return t.failed("start "+id, err)
}

// StartRestart implements Temporal.
func (t *temporalClient) StartRestart(ctx context.Context, in workflows.RestartOSDsInput) error {
	return t.start(ctx, jobs.RestartOSDs.ID(in.Namespace), "restart of the OSDs in "+in.Namespace, jobs.RestartOSDs.Type, in)
}

// Rollout implements Temporal.
func (t *temporalClient) Rollout(ctx context.Context, id string) (Rollout, error) {
	var r Rollout
	var err error
	r.Execution, r.Status, r.Result, err = ask[workflows.UpdateStatus, RolloutResult](ctx, t, id)
	if r.Status != nil {
		r.Started = r.Status.Started // of the first run, if it went on in another one
	}
	return r, err
}

// Rollouts implements Temporal.
func (t *temporalClient) Rollouts(ctx context.Context) ([]Rollout, error) {
	ids, err := t.runningIDs(ctx, jobs.UpdateOSDs.Type, jobs.RestartOSDs.Type)
	if err != nil {
		return nil, err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool {
		_, _, ok := jobs.Parse(id)
		return !ok
	})
	return thatRun(ctx, ids, t.Rollout)
}

// SignalRollout implements Temporal.
func (t *temporalClient) SignalRollout(ctx context.Context, id, signal string, arg any) error {
	return t.signal(ctx, id, signal, arg)
}
