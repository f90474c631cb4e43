package workflows

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

// This file is a rollout's runbook: look, do the next thing, look again.

// A rollout that was refused, or that cannot be judged now, looks again after this long if nobody tells it to earlier.
const (
	lookAgainSoon = 10 * time.Second // the storage cluster does not answer, or cannot spare anybody
	lookAgainLate = time.Hour        // a person has to do something, and the watcher tells when it is done
)

func (u *update) run(ctx workflow.Context) error {
	for {
		s, err := u.survey(ctx)
		if err != nil {
			return err
		}
		if done, err := u.step(ctx, s); done || err != nil {
			return err
		}
		if u.lease.token == 0 && workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return u.continueAsNew(ctx)
		}
	}
}

func (u *update) survey(ctx workflow.Context) (activities.Survey, error) {
	u.job.enter(ctx, PhaseSurvey)
	u.changed = false
	in := activities.SurveyInput{Fleet: u.fleet, Skip: u.state.Skip, CanaryOf: u.state.Canary.Template}
	s, err := call(persistent(ctx, "look at the OSDs of "+u.fleet.Name), rolling.SurveyOSDs, in)
	if err == nil {
		u.seen = s
		if s.Cluster.Name != "" {
			u.lease.cluster = s.Cluster
		}
	}
	return s, err
}

// step does the next thing. done means that there is none.
func (u *update) step(ctx workflow.Context, s activities.Survey) (done bool, err error) {
	switch {
	case !s.Found || s.Deleting:
		u.state.Result.Outcome = OutcomeGone
		return true, nil
	case len(s.Refused) > 0:
		// Nothing is touched, and what runs stays. A CephOSD can be mended; the input of a restart cannot.
		r := s.Refused[0]
		if u.fleet.Kind == activities.FleetDeployments {
			return false, refuse(&r)
		}
		return false, u.idle(ctx, lookAgainLate, fmt.Sprintf("the spec to be mended: %s: %q: %s", r.Field, r.Value, r.Allowed))
	case s.Unavailable != "":
		// In the middle of a batch, too, and mons elect while OSDs are away: the lease, and with it noout, stays.
		return false, u.rest(ctx, PhaseRest, lookAgainSoon, "the storage cluster: "+s.Unavailable)
	}
	if err := u.tidy(ctx, s); err != nil {
		return false, err
	}
	switch s.Next.Do {
	case rollout.DoCreate:
		_, err := call(persistent(ctx, s.Next.Why), rolling.CreatePods, activities.KeysInput{Fleet: u.fleet, Names: keys(s.Next.OSDs)})
		return false, err
	case rollout.DoAwait:
		return false, u.await(ctx, s.Next.OSDs)
	case rollout.DoReplace:
		return false, u.replace(ctx, s)
	case rollout.DoNothing:
	}
	u.state.Halted, u.state.Awaited = nil, nil
	if err := u.heal(ctx); err != nil {
		return false, err
	}
	if u.changed || u.lease.asked {
		return false, nil
	}
	u.state.Result.Outcome = OutcomeDone
	return true, nil
}

// await waits for OSDs that do not serve. While the lease is held, for those only that it was granted for: a disk that broke
// elsewhere may take days to be replaced, and others wait for the lease.
func (u *update) await(ctx workflow.Context, osds []rollout.OSD) error {
	if !u.lease.asked {
		return u.arrive(ctx, osds)
	}
	var own []rollout.OSD
	for _, o := range osds {
		if slices.Contains(u.lease.claim.Daemons, o.Name) {
			own = append(own, o)
		}
	}
	if len(own) == 0 {
		return u.heal(ctx)
	}
	return u.arrive(ctx, own)
}

// tidy takes away what takes nothing from anybody.
func (u *update) tidy(ctx workflow.Context, s activities.Survey) error {
	if len(s.Discard) > 0 {
		if _, err := call(persistent(ctx, "delete duplicate pods"), rolling.DiscardPods, activities.KeysInput{Fleet: u.fleet, Names: s.Discard}); err != nil {
			return err
		}
	}
	if s.Unnoted > 0 {
		if _, err := call(persistent(ctx, "note what is known of the pods"), rolling.NotePods, u.fleet); err != nil {
			return err
		}
	}
	if len(s.Removable) > 0 {
		if _, err := call(persistent(ctx, "delete the pods of OSDs that left the spec"), rolling.RemoveOSDs, activities.KeysInput{Fleet: u.fleet, Names: s.Removable}); err != nil {
			return err
		}
	}
	return nil
}

// replace brings one batch where it belongs, from the lease to whole data.
func (u *update) replace(ctx workflow.Context, s activities.Survey) error {
	step := s.Next
	if u.lease.asked && u.lease.finishing && !step.Broken {
		return u.heal(ctx) // of the batch before
	}
	if u.job.Paused {
		return u.pause(ctx)
	}
	if !step.Broken {
		if held, err := u.heldBack(ctx, s); held || err != nil {
			return err
		}
	}
	in := activities.Replacement{Fleet: u.fleet, Cluster: s.Cluster, Template: s.Template, OSDs: step.OSDs}
	// Before any OSD is touched: a template that the API server rejects must not cost even one.
	rehearsed, err := call(persistent(ctx, "rehearse the new pods"), rolling.RehearseBatch, in)
	if err != nil {
		return err
	}
	if r := rehearsed.Refused; r != nil {
		u.seen.Refused = append(u.seen.Refused, *r)
		return u.idle(ctx, lookAgainLate, fmt.Sprintf("the template to be mended: %s: %q: %s", r.Field, r.Value, r.Allowed))
	}
	if len(rehearsed.OSDs) > 0 {
		step.OSDs, in.OSDs = rehearsed.OSDs, rehearsed.OSDs
	}
	if granted, err := u.acquire(ctx, step); !granted || err != nil {
		return err
	}
	u.job.enter(ctx, PhaseReplace)
	u.begin(ctx, step)
	ref := u.lease.ref(ctx)
	in.WorkflowID, in.RunID, in.Token, in.Epoch = ref.WorkflowID, ref.RunID, u.lease.token, u.lease.epoch
	r, err := u.stop(ctx, in)
	switch {
	case isType(err, activities.LeaseLost):
		u.lease.release(ctx)
		u.batch = nil
		return nil
	case err != nil:
		return err
	case r.Refused != "":
		u.batch = nil
		u.lease.release(ctx)
		return u.idle(ctx, lookAgainSoon, "the storage cluster to spare them: "+r.Refused)
	}
	u.state.Result.Replaced += len(r.OSDs)
	u.state.Result.Batches++
	u.state.Halted, u.state.Awaited = nil, nil
	if step.Canary {
		u.state.Canary = Canary{Template: s.Template, OSD: step.OSDs[0].String()}
	}
	return u.arrive(ctx, r.OSDs)
}

// finishBy is how long an abort waits for a batch that is being replaced: what is deleted should be made again, and the lease must
// not go while there is more to delete. A pod on a dead node never ends, and must not keep the job from ending.
const finishBy = time.Minute

// stop replaces a batch under the lease.
func (u *update) stop(ctx workflow.Context, in activities.Replacement) (r activities.Replaced, err error) {
	lasting, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	replaced := begin(stopping(lasting, "replace "+u.batch.OSDs[0]+andMore(u.batch.OSDs)), rolling.ReplaceBatch, in)
	if aborted := workflow.Await(ctx, replaced.IsReady); aborted != nil {
		if done, err := awaitAtMost(lasting, finishBy, "finish what was begun", replaced.IsReady); err != nil || !done {
			cancel()
			_ = replaced.Get(lasting, nil)
		}
		return r, aborted
	}
	err = replaced.Get(lasting, &r)
	return r, err
}

// pause keeps the next batch from beginning. What is under way goes on: OSDs that are away come back, and the lease, which others
// may wait for, is given back when their data is whole.
func (u *update) pause(ctx workflow.Context) error {
	u.job.enter(ctx, PhaseRest)
	u.job.waitFor(ctx, pausedWait)
	u.report(ctx, "")
	return workflow.Await(ctx, func() bool { return !u.job.Paused || u.changed })
}

// heldBack waits for whatever keeps the next batch from beginning although nothing is wrong.
func (u *update) heldBack(ctx workflow.Context, s activities.Survey) (held bool, err error) {
	now := workflow.Now(ctx)
	next := u.state.LastBatch.Add(s.Rules.PauseBetween)
	switch {
	case s.Rules.Paused:
		return true, u.idle(ctx, lookAgainLate, "spec.paused to be removed")
	case s.Rules.Shut && s.Rules.WindowChanges.IsZero():
		return true, u.idle(ctx, lookAgainLate, "a maintenance window: none will ever open")
	case s.Rules.Shut:
		return true, u.idle(ctx, s.Rules.WindowChanges.Sub(now), "the maintenance window that opens at "+s.Rules.WindowChanges.Format(time.RFC3339))
	case !u.state.LastBatch.IsZero() && now.Before(next):
		return true, u.idle(ctx, next.Sub(now), "the pause between two batches to be over")
	case u.state.Canary.Template == s.Template && !u.state.Canary.Judged:
		return true, u.judge(ctx, s)
	}
	return false, nil
}

// judge gives the canary its time, and a person the last word if that is wanted. A change begins anew with a look.
func (u *update) judge(ctx workflow.Context, s activities.Survey) error {
	u.job.enter(ctx, PhaseJudge)
	c := &u.state.Canary
	if soaked := c.Whole.Add(s.Rules.Soak); workflow.Now(ctx).Before(soaked) {
		return u.idleIn(ctx, PhaseJudge, soaked.Sub(workflow.Now(ctx)), fmt.Sprintf("the canary %s to have served until %s", c.OSD, soaked.Format("15:04:05")))
	}
	if s.Rules.Approval && !c.Approved {
		return u.idleIn(ctx, PhaseJudge, lookAgainLate, fmt.Sprintf("the signal `approve`: the canary %s serves since %s", c.OSD, c.Whole.Format("15:04:05")))
	}
	c.Judged = true
	return nil
}

// acquire makes sure that the lease is held for a batch. OSDs that are in no failure domain need none.
func (u *update) acquire(ctx workflow.Context, step rollout.Step) (bool, error) {
	want := lease.Claim{
		Domain: step.Domain, Reason: because("rollout of "+u.fleet.Name+": "+step.Why, u.reason), Priority: lease.PriorityUpdate,
	}
	for _, o := range step.OSDs {
		if o.Name != "" {
			want.Daemons = append(want.Daemons, o.Name)
		}
	}
	want.NooutHosts = want.Daemons
	if u.lease.holds(want) && !u.lease.lost() {
		return true, nil
	}
	u.lease.release(ctx)
	if step.Domain.IsZero() {
		return true, nil
	}
	u.job.enter(ctx, PhaseLease)
	wait := fmt.Sprintf("the lease of %s for %s", step.Domain, strings.Join(want.Daemons, ", "))
	granted, err := u.lease.acquire(ctx, want, func() bool { return u.changed || u.job.Paused }, func(why string) {
		u.job.waitFor(ctx, because(wait, why))
		u.report(ctx, "")
	})
	if !granted && err == nil {
		u.lease.release(ctx)
	}
	return granted, err
}

// arrive waits until OSDs serve and takes note of it. One that takes longer than its deadline halts the rollout, which goes
// on by itself as soon as it serves, or its spec is another one.
func (u *update) arrive(ctx workflow.Context, osds []rollout.OSD) error {
	u.job.enter(ctx, PhaseArrive)
	deadline := u.until(ctx, osds)
	u.job.waitFor(ctx, strings.Join(keysOrNames(osds), ", ")+" to serve")
	if away := allAway(osds); away != "" {
		u.job.waitFor(ctx, strings.Join(keysOrNames(osds), ", ")+" to serve: "+away)
		deadline = workflow.Now(ctx).Add(lookAgainLate) // whoever took the nodes brings them back
	}
	u.job.NextTimer, u.job.NextTimerDoes = deadline, "halt"
	u.report(ctx, "")
	in := activities.AwaitInput{Fleet: u.fleet, Cluster: u.lease.cluster, Template: u.seen.Template, Keys: keys(osds)}
	awaitCtx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	arrival := begin(watching(awaitCtx, "wait for the OSDs"), rolling.AwaitOSDs, in)
	for {
		var late workflow.Future
		if u.state.Halted == nil {
			late = workflow.NewTimerWithOptions(awaitCtx, max(deadline.Sub(workflow.Now(ctx)), time.Millisecond), workflow.TimerOptions{Summary: "progress deadline"})
		}
		if err := workflow.Await(ctx, func() bool {
			return arrival.IsReady() || u.changed || u.lease.notices.Len() > 0 || late != nil && late.IsReady()
		}); err != nil {
			return err
		}
		u.lease.lost() // its noout had its time, say; what is broken stays broken
		switch {
		case arrival.IsReady():
			return u.arrived(ctx, in, arrival)
		case u.changed:
			return nil
		case late != nil && late.IsReady() && allAway(osds) != "":
			return nil
		case late != nil && late.IsReady():
			u.state.Halted = &activities.Halt{Since: workflow.Now(ctx), Reason: u.job.WaitsFor + " took longer than its deadline"}
			u.job.NextTimer, u.job.NextTimerDoes = time.Time{}, ""
			u.report(ctx, "")
		}
	}
}

func (u *update) arrived(ctx workflow.Context, in activities.AwaitInput, arrival workflow.Future) error {
	u.job.NextTimer, u.job.NextTimerDoes = time.Time{}, ""
	var a activities.Arrival
	if err := arrival.Get(ctx, &a); err != nil || a.Moved {
		return err
	}
	if _, err := call(persistent(ctx, "note that the OSDs serve"), rolling.ConfirmOSDs, in); err != nil {
		return err
	}
	u.state.Halted, u.state.Awaited = nil, nil
	return u.heal(ctx)
}

// until notes since when OSDs are awaited, and says until when they have time: from the one that is late first.
func (u *update) until(ctx workflow.Context, osds []rollout.OSD) time.Time {
	now := workflow.Now(ctx)
	awaited := map[string]time.Time{}
	first := now
	for _, o := range osds {
		since, known := u.state.Awaited[o.Key]
		if !known {
			since = now
		}
		awaited[o.Key] = since
		if since.Before(first) {
			first = since
		}
	}
	u.state.Awaited = awaited
	return first.Add(u.seen.Rules.ProgressDeadline)
}

// heal gives the lease back when the storage is whole.
func (u *update) heal(ctx workflow.Context) error {
	if u.lease.asked {
		u.job.enter(ctx, PhaseHeal)
		wait := "the storage in " + u.lease.claim.Domain.String() + " to be whole again"
		u.job.waitFor(ctx, wait)
		// One that is healing may be hurt again: its pod is evicted by a drain, say, and somebody has to make it anew.
		released, err := u.lease.finish(ctx, func() bool { return u.changed }, func(why string) { u.job.waitFor(ctx, because(wait, why)) })
		if err != nil || !released {
			return err
		}
	}
	if u.batch == nil {
		return nil
	}
	u.batch, u.state.LastBatch = nil, workflow.Now(ctx)
	if c := &u.state.Canary; c.Template == u.seen.Template && c.Whole.IsZero() {
		c.Whole = workflow.Now(ctx)
	}
	return nil
}

func (u *update) begin(ctx workflow.Context, step rollout.Step) {
	u.batch = &activities.FleetBatch{Domain: step.Domain, OSDs: keysOrNames(step.OSDs), Since: workflow.Now(ctx)}
}

// idle gives the lease back and waits for a while, or until somebody says that something has changed.
func (u *update) idle(ctx workflow.Context, most time.Duration, waits string) error {
	return u.idleIn(ctx, PhaseRest, most, waits)
}

func (u *update) idleIn(ctx workflow.Context, phase string, most time.Duration, waits string) error {
	u.lease.release(ctx)
	return u.rest(ctx, phase, most, waits)
}

// rest waits as idle does, and keeps what it holds.
func (u *update) rest(ctx workflow.Context, phase string, most time.Duration, waits string) error {
	u.job.enter(ctx, phase)
	u.job.waitFor(ctx, waits)
	u.job.NextTimer, u.job.NextTimerDoes = workflow.Now(ctx).Add(most), "look again"
	u.report(ctx, "")
	approved := u.state.Canary.Approved
	_, err := awaitAtMost(ctx, most, clip(waits), func() bool {
		return u.changed || u.state.Canary.Approved != approved
	})
	u.job.NextTimer, u.job.NextTimerDoes = time.Time{}, ""
	return err
}

// report writes the status, if it says anything new. It is for people: that it cannot be written stops nothing.
func (u *update) report(ctx workflow.Context, outcome string) {
	r := activities.FleetReport{
		Fleet: u.fleet, WorkflowID: workflow.GetInfo(ctx).WorkflowExecution.ID, Generation: u.seen.Generation, Template: u.seen.Template,
		Phase: u.job.Phase, Message: u.job.WaitsFor, Since: u.job.Since, Counts: u.seen.Counts, Batch: u.batch, Halted: u.state.Halted,
		Refused: u.seen.Refused, Warned: u.seen.Warned, Foreign: u.seen.Foreign, Waiting: u.seen.Superfluous, Counted: u.seen.Counted,
		Outcome: outcome, Skipped: u.state.Skip,
	}
	if outcome != "" {
		r.Phase, r.Message = outcome, ""
	}
	if sameReport(r, u.wrote) {
		return
	}
	u.wrote = r
	if _, err := call(quick(ctx, "write the status"), rolling.ReportOSDs, r); err != nil {
		u.wrote = activities.FleetReport{}
		workflow.GetLogger(ctx).Warn("cannot write the status", "error", err)
	}
}

// continueAsNew begins a new history between two batches, with all that was said until now.
func (u *update) continueAsNew(ctx workflow.Context) error {
	if err := workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
		return err
	}
	u.state.Paused = u.job.Paused
	return u.again(&u.state)
}

// allAway says why none of the OSDs can serve where it is; "" when one of them could.
func allAway(osds []rollout.OSD) (why string) {
	for _, o := range osds {
		if o.Away == "" {
			return ""
		}
		why = o.Away
	}
	return why
}

func keys(osds []rollout.OSD) []string {
	out := make([]string, 0, len(osds))
	for _, o := range osds {
		out = append(out, o.Key)
	}
	return out
}

// keysOrNames is how people call OSDs, a few of them.
func keysOrNames(osds []rollout.OSD) []string {
	const most = 16
	var out []string
	for _, o := range osds[:min(len(osds), most)] {
		out = append(out, o.String())
	}
	if more := len(osds) - most; more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return out
}

func andMore(names []string) string {
	if len(names) == 1 {
		return ""
	}
	return fmt.Sprintf(" and %d more", len(names)-1)
}
