package workflows

import (
	"cmp"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
)

// This file is how a migration of mons works: what it does under a lease, step by step.

// underLease goes on with a step under the lease: nobody else takes a mon away meanwhile.
func (m *migration) underLease(ctx workflow.Context, next monplan.Step) error {
	c := m.job.claimOn(m.seen.Cluster)
	want := lease.Claim{
		Domain: lease.Mon(cmp.Or(next.Takes, c.Claim.Domain.Name)), Reason: told(*next.Work),
		Priority: jobs.MigrateMons.Priority,
	}
	// While the lease is waited for a mon may die, whose replacement does not wait for it.
	changed := func() bool { return m.job.changed }
	hurry := func() bool { return m.job.changed || m.heals() }
	meanwhile := func(ctx workflow.Context) error { return m.prepare(ctx, c) }
	r := request{of: c, want: want, unless: changed, hurry: hurry, meanwhile: meanwhile}
	return m.job.underLease(ctx, []request{r}, func(ctx workflow.Context) error {
		if !c.held() {
			c.release(ctx)
			return errLost
		}
		return m.work(ctx, c)
	})
}

// heals: what comes next is the replacement of a dead mon, or its removal. It waits for no lease, nor for the storage
// to be whole after the work: the dead one may be the mon for which the lease is held, and never be back.
func (m *migration) heals() bool {
	next := m.seen.Step
	return next.Verdict == monplan.Move && next.Takes == "" &&
		(next.Kind() == monplan.FailOver || next.Kind() == monplan.Remove)
}

// work does the acts of a step for which the lease is held. It gives it back as soon as it is not needed, or if the
// step has to wait before its newcomer is started: then nothing has been changed that others would have to be kept
// from.
func (m *migration) work(ctx workflow.Context, c *claimant) error {
	for {
		if err := m.look(ctx); err != nil {
			return err
		}
		if c.job.listen(); !c.held() {
			return errLost
		}
		next := m.seen.Step
		switch {
		case m.stale:
		case next.Verdict == monplan.Move && next.Takes == c.Claim.Domain.Name:
			info := workflow.GetInfo(ctx)
			if err := m.act(ctx, activities.MonStepInput{
				Grant:      &activities.Grant{Cluster: c.Cluster, Token: c.Token},
				WorkflowID: info.WorkflowExecution.ID, RunID: info.FirstRunID,
			}); err != nil {
				return err
			}
		case next.Verdict == monplan.Wait && next.Work != nil && !next.Work.Started.IsZero():
			if err := m.await(ctx); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// earlyFor is how long the job gets the next step ready before it asks whether the storage is whole: the keeper may
// have to be told once more, and would keep others waiting until then.
const earlyFor = 10 * time.Second

// prepare gets the place of the next newcomer ready while the storage heals from the step before. It takes nothing from
// anybody, so the keeper may take the lease back meanwhile.
func (m *migration) prepare(ctx workflow.Context, c *claimant) error {
	for next := m.seen.Step; next.Verdict == monplan.Move && next.Early && !m.stale && !m.heals(); {
		if err := c.tellDone(ctx); err != nil {
			return err
		}
		if err := m.act(ctx, activities.MonStepInput{AtMost: earlyFor}); err != nil {
			return err
		}
		before := next.Acts[0]
		if next = m.seen.Step; len(next.Acts) > 0 && next.Acts[0] == before { // it takes longer
			break
		}
	}
	return nil
}

// act carries out the first act of a step, when it is written down, and sees what comes next. in has what it may do.
func (m *migration) act(ctx workflow.Context, in activities.MonStepInput) error {
	work, begins := m.seen.Step.Noted(workflow.Now(ctx)), m.seen.Step.Work.Started.IsZero()
	m.memory().Work = &work
	if id, named := monplan.NumberOf(work.Newcomer); named {
		m.memory().NextID = max(m.memory().NextID, id+1)
	}
	in.Ref, in.Memory, in.Seen = m.in.ref, *m.memory(), m.seen
	in.Seen.Step.Work = &work
	first := in.Seen.Step.Acts[0]
	m.job.enter(ctx, phase(in.Seen.Step))
	m.job.waitFor(ctx, waitsFor(in.Seen.Step))
	runCtx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	m.job.onPause = cancel
	stepped, err := perform(stopping(runCtx, clip(first.String())), m.job, moving.CarryOutMon, in)
	m.job.onPause = nil
	if temporal.IsCanceledError(err) && ctx.Err() == nil { // a pause
		m.stale = true
		return nil
	}
	if err != nil {
		return err
	}
	m.take(stepped.Survey)
	if !stepped.Survey.Found && stepped.Unstarted && begins { // what was made for it goes with the CephMon
		m.memory().Work.Started = time.Time{}
	}
	if stepped.Refused == "" {
		return nil
	}
	m.job.waitFor(ctx, stepped.Refused)
	m.stale = true
	_, err = m.job.awaitAtMost(ctx, refusedFor, clip(stepped.Refused), func() bool { return m.job.changed })
	return err
}

func phase(s monplan.Step) string {
	if s.Work.Undo != "" {
		return PhaseMonUndo
	}
	return phaseOf[s.Acts[0].Do]
}

// waitsFor is what an act waits for, in words.
func waitsFor(s monplan.Step) string {
	mon, why := "mon."+s.Acts[0].Mon, ""
	if s.Why != "" {
		why = ": " + s.Why
	}
	switch s.Acts[0].Do {
	case monplan.Schedule:
		return "a node for " + mon + ", which Kubernetes finds by its canary" + why
	case monplan.ClaimVolume:
		return "the volume of " + mon + why
	case monplan.Start:
		return mon + " to be started" + why
	case monplan.AwaitQuorum:
		return mon + " to be in quorum" + why
	case monplan.RemoveMon:
		return mon + " to leave the monmap" + why
	default:
		return fmt.Sprintf("%s %s%s", s.Acts[0].Do, mon, why)
	}
}
