package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/lease"
)

// VisitInput starts a visit, or goes on with it.
type VisitInput struct {
	Node  string      `json:"node"`
	State *VisitState `json:"state,omitempty"`
}

// VisitState is what a visit hands on to its next run.
type VisitState struct {
	JobState
	Target   activities.Target `json:"target"`
	Cordoned bool              `json:"cordoned,omitempty"`
	Result   DrainNodeResult   `json:"result"`
}

type visit struct {
	in    VisitInput
	job   *job
	state VisitState
}

// Visit is a job that only the tests have, to show what a job needs. It cordons a node under the lease of its failure
// domain, so that a person can work on it, and uncordons it after an hour, or when the person is done. It goes under
// the ID of a drain, since keepers grant leases to jobs of the registry alone.
func Visit(ctx workflow.Context, in VisitInput) (DrainNodeResult, error) {
	v := &visit{in: in}
	if in.State != nil {
		v.state = *in.State
	}
	v.job = newJob(ctx, []string{PhaseResolve, PhaseLease, PhaseReturn, PhaseHeal}, v.state.JobState)
	err := runJob(ctx, v.job, v)
	return v.state.Result, err
}

func (v *visit) status() any { return v.job.JobStatus }

func (v *visit) validate(workflow.Context) error { return nil }

func (v *visit) outcome() *string { return &v.state.Result.Outcome }

func (v *visit) again(ctx workflow.Context, s JobState) error {
	v.state.JobState = s
	return workflow.NewContinueAsNewError(ctx, Visit, VisitInput{Node: v.in.Node, State: &v.state})
}

func (v *visit) run(ctx workflow.Context) error {
	v.state.Result.Outcome = OutcomeDone
	for {
		if err := v.resolve(ctx); err != nil {
			return err
		}
		err := v.job.underLease(ctx, []request{{of: v.job.claims[0], unless: never, want: lease.Claim{
			Domain: v.state.Target.Domain, Node: v.in.Node, Reason: "a visit", Priority: jobs.DrainNode.Priority,
		}}}, v.work)
		if !errors.Is(err, errLost) {
			return err
		}
	}
}

func (v *visit) resolve(ctx workflow.Context) (err error) {
	lease := v.job.claims[0]
	if lease.Stage != claimFree {
		return nil // the run before knew
	}
	v.job.enter(ctx, PhaseResolve)
	v.state.Target, err = perform(persistent(ctx, "find the storage"), v.job, draining.ResolveNode,
		activities.ResolveInput{Node: v.in.Node})
	lease.Cluster = v.state.Target.Cluster
	return err
}

func (v *visit) work(ctx workflow.Context) error {
	v.job.enter(ctx, PhaseReturn)
	v.state.Cordoned = true // for the clean-up: a cordon that failed may be there all the same
	if err := v.cordon(ctx, true); err != nil {
		return err
	}
	v.job.waitFor(ctx, "the signal `done`, at most for an hour")
	left := time.Hour - workflow.Now(ctx).Sub(v.job.Since) // the wait may have begun in the run before
	over := func() bool { return v.lost() || v.job.done.Len() > 0 }
	if _, err := v.job.awaitAtMost(ctx, left, "over", over); err != nil {
		return err
	}
	if v.lost() {
		return errLost
	}
	return v.cordon(ctx, false)
}

// lost: the keeper has taken the lease back, for whatever reason. Who works without one has nobody close the rest.
func (v *visit) lost() bool {
	v.job.listen()
	return !v.job.claims[0].held()
}

func (v *visit) cordon(ctx workflow.Context, on bool) error {
	_, err := perform(persistent(ctx, "cordon, or uncordon"), v.job, draining.Cordon,
		activities.CordonInput{Node: v.in.Node, UID: v.state.Target.UID, On: on})
	v.state.Cordoned = v.state.Cordoned && (on || err != nil)
	return err
}

func (v *visit) cleanUp(ctx workflow.Context) {
	if v.state.Cordoned {
		_ = v.cordon(ctx, false)
	}
}
