package workflows

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

// This file is one batch, from the lease to whole data.

// replace brings one batch where it belongs.
func (u *update) replace(ctx workflow.Context, s activities.Survey) error {
	step := s.Next
	healing := u.healing() && !step.Broken && !u.heals(step) // from the batch before
	if healing && !u.mayAskAhead(s) {
		return u.heal(ctx)
	}
	if u.state.Unspared.IsZero() {
		u.state.Halted = nil // nothing is awaited any more: it serves, or a person excused it
	}
	if !healing {
		if held, err := u.heldBack(ctx, s); held || err != nil {
			return err
		}
		u.holds = ""
	}
	in := activities.Replacement{OSDSet: u.osdSet, Cluster: s.Cluster, Template: s.Template, OSDs: step.OSDs}
	// Before any OSD is touched: a template that the API server rejects must not cost even one.
	rehearsed, err := perform(thorough(ctx, "rehearse the new pods"), u.job, rolling.RehearseBatch, in)
	if err != nil {
		return err
	}
	switch r := rehearsed.Refused; {
	case (r != nil || rehearsed.Waits != "") && healing:
		return u.heal(ctx)
	case r != nil && u.osdSet.Kind == activities.OSDSetDeployments:
		return refuse(r) // nobody can mend the input of a restart
	case r != nil:
		u.seen.Refused = append(u.seen.Refused, *r)
		return u.rest(ctx, toBeMended(*r), u.keeps(step))
	case rehearsed.Waits != "":
		return u.rest(ctx, wait{
			phase: PhaseRest, holds: activities.HoldRelease, first: 10 * time.Second, most: 5 * time.Minute,
			what: "the go-ahead for another image: " + rehearsed.Waits,
		}, u.keeps(step))
	}
	if len(rehearsed.OSDs) > 0 {
		step.OSDs, in.OSDs = rehearsed.OSDs, rehearsed.OSDs
	}
	if healing {
		if err := u.healFor(ctx, step); err != nil || u.job.changed || u.job.Paused || u.healing() {
			return err
		}
	}
	if granted, err := u.acquire(ctx, step, s); !granted || err != nil {
		return err
	}
	ref := u.lease.ref(ctx)
	in.WorkflowID, in.RunID, in.Token, in.Epoch, in.Alive = ref.WorkflowID, ref.RunID, u.lease.Token,
		u.lease.Epoch, u.lease.Alive
	return u.carryOut(ctx, step, in)
}

// carryOut stops a batch under the lease, makes it anew, and waits until it serves.
func (u *update) carryOut(ctx workflow.Context, step rollout.Step, in activities.Replacement) error {
	r, err := u.stop(ctx, step, in)
	switch {
	case isType(err, activities.LeaseLost):
		u.lease.release(ctx)
		u.state.Batch = nil
		return nil
	case err != nil:
		return err
	case r.Refused != "":
		return u.unspared(ctx, step, r.Refused)
	}
	u.state.Result.Replaced += len(r.OSDs)
	u.noteLetGo(r.OSDs)
	u.state.Result.Batches++
	u.state.Halted, u.state.Awaited, u.state.Unspared, u.state.Rested = nil, nil, time.Time{}, rested{}
	if step.Canary {
		u.state.Canary = Canary{Template: in.Template, OSD: step.OSDs[0].String(), Key: step.OSDs[0].Key}
	}
	return u.arrive(ctx, r.OSDs)
}

// healing: a batch is done, and the keeper has not taken its lease back yet.
func (u *update) healing() bool { return u.lease.finished() }

// heals tells whether the storage is not whole before this batch has started anew, too: its OSDs have lost the
// monitors, and were too many for one batch.
func (u *update) heals(step rollout.Step) bool {
	return step.Unheard && u.lease.Claim.Domain == step.Domain
}

// mayAskAhead tells whether the lease of the next batch may be asked for while the storage heals from the one before:
// if all that is left to wait for is the storage. A batch of several has to wait until the data is whole, because only
// then the storage cluster can say which of them it could spare together.
func (u *update) mayAskAhead(s activities.Survey) bool {
	step, rules := s.Next, s.Rules
	switch {
	case len(step.OSDs) != 1 || step.OSDs[0].Name == "" || step.Domain.IsZero() || step.Canary:
		return false
	case u.job.Paused || rules.Paused || rules.PauseBetween > 0 || rules.Shut || !rules.WindowChanges.IsZero() ||
		!u.state.Unspared.IsZero():
		return false
	case u.state.Canary.Template == s.Template && !u.state.Canary.Judged:
		return false
	case rules.Consent && !u.state.Consent:
		return false
	}
	return true
}

// keeps tells whether the lease is held for OSDs of a broken batch, which have to be replaced once more: as long as
// they are away their noout has to stay.
func (u *update) keeps(step rollout.Step) bool {
	return step.Broken && u.lease.held() && slices.ContainsFunc(step.OSDs, func(o rollout.OSD) bool {
		return slices.Contains(u.lease.Claim.Daemons, o.Name)
	})
}

// unspared waits until the storage cluster can do without the batch. One that it never lets go halts the rollout: a
// person has to do something about it.
func (u *update) unspared(ctx workflow.Context, step rollout.Step, why string) error {
	keep := u.keeps(step)
	if !keep {
		u.state.Batch = nil
	}
	now := workflow.Now(ctx)
	if u.state.Unspared.IsZero() {
		u.state.Unspared = now
	}
	names := strings.Join(keysOrNames(step.OSDs), ", ")
	if u.state.Halted == nil && now.Sub(u.state.Unspared) >= u.seen.Rules.ProgressDeadline {
		u.state.Halted = &activities.Halt{
			Since: now,
			Reason: fmt.Sprintf("the storage cluster has not been able to spare %s since %s: %s", names,
				clock(u.state.Unspared), why),
		}
	}
	return u.rest(ctx, wait{
		phase: PhaseRest, holds: activities.HoldStorage, first: 10 * time.Second, most: 5 * time.Minute,
		what: "the storage cluster to spare " + names + ": " + why,
	}, keep)
}

// finishBy is how long an abort waits for a batch that is being replaced: what is deleted should be made again, and the
// lease must not go while there is more to delete. A pod on a dead node never ends, and must not keep the job from
// ending.
const finishBy = time.Minute

// Stopping is a batch that is being replaced.
type Stopping struct {
	Step  rollout.Step           `json:"step"`
	Batch activities.Replacement `json:"batch"`
}

// stop replaces the pods. An abort waits for it, but not for ever. One that takes longer than its deadline halts the
// rollout: a pod may end for ever, and only a person can say that its node is dead. When the history is long the next
// run goes on with the very same batch, as another attempt does: an OSD that was deleted comes back in any case.
func (u *update) stop(
	ctx workflow.Context, step rollout.Step, in activities.Replacement,
) (r activities.Replaced, err error) {
	u.job.enter(ctx, PhaseReplace)
	if u.state.Stopping == nil {
		u.state.Batch = &activities.OSDSetBatch{Domain: step.Domain, OSDs: keysOrNames(step.OSDs), Since: workflow.Now(ctx)}
	}
	u.state.Stopping = nil
	names := u.state.Batch.OSDs
	u.job.waitFor(ctx, strings.Join(names, ", ")+" to end and to be made anew")
	lasting, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	for {
		attempt, giveUp := workflow.WithCancel(lasting)
		replaced := begin(stopping(attempt, "replace "+names[0]+andMore(names)), rolling.ReplaceBatch, in)
		u.report(ctx, "") // while they end: that people read of it must not cost time
		deadline := u.state.Batch.Since.Add(u.seen.Rules.ProgressDeadline)
		err := u.awaitProgress(ctx, deadline, replaced.IsReady)
		isFull := errors.Is(err, errFull)
		if err != nil && !isFull {
			// The rollout ends, so that a full history is no reason not to wait.
			if done, err := awaitAtMost(lasting, finishBy, "finish what was begun", replaced.IsReady); err != nil || !done {
				giveUp()
				_ = replaced.Get(lasting, nil)
			}
			return r, err
		}
		if isFull {
			giveUp()
		}
		err = replaced.Get(lasting, &r)
		giveUp()
		switch {
		case !isFull || err == nil || final(err):
			return r, err
		case letSignalsIn(ctx) == nil:
			step.OSDs = nil // they are in the batch
			u.state.Stopping = &Stopping{Step: step, Batch: in}
			return r, errFull
		}
		// Aborted just now: what was deleted is made again all the same.
	}
}

// awaitProgress waits until cond holds, however long that takes, and halts the rollout at its deadline.
func (u *update) awaitProgress(ctx workflow.Context, deadline time.Time, cond func() bool) error {
	u.job.NextTimer, u.job.NextTimerDoes = deadline, "halt"
	defer func() { u.job.NextTimer, u.job.NextTimerDoes = time.Time{}, "" }()
	held, err := u.job.awaitAtMost(ctx, deadline.Sub(workflow.Now(ctx)), "progress deadline", cond)
	if held || err != nil {
		return err
	}
	u.halt(ctx)
	u.report(ctx, "")
	return u.job.await(ctx, cond)
}

// halt: what is waited for takes too long. Nothing further goes down before it is there, or a person excused it.
func (u *update) halt(ctx workflow.Context) {
	since := workflow.Now(ctx)
	if u.state.Halted != nil { // for others perhaps, which are back by now
		since = u.state.Halted.Since
	}
	u.state.Halted = &activities.Halt{
		Since:  since,
		Reason: fmt.Sprintf("%s took longer than %s", u.job.WaitsFor, u.seen.Rules.ProgressDeadline),
	}
	u.job.NextTimer, u.job.NextTimerDoes = time.Time{}, ""
}

// claim is what a batch needs.
func (u *update) claim(step rollout.Step) lease.Claim {
	what := "rollout of " + u.osdSet.Name
	if u.osdSet.Kind == activities.OSDSetDeployments {
		what = "restart of the OSDs" // named after the time when it began, which tells nobody anything
	}
	if u.waiting() {
		what = "restart of what waits"
	}
	c := lease.Claim{
		Domain: step.Domain, Reason: because(what+": "+step.Why, u.reason),
		Priority: jobs.UpdateOSDs.Priority,
	}
	for _, o := range step.OSDs {
		if o.Name != "" {
			c.Daemons = append(c.Daemons, o.Name)
		}
	}
	c.FlagHosts = c.Daemons
	if u.waiting() && slices.ContainsFunc(c.Daemons, func(daemon string) bool {
		return !strings.HasPrefix(daemon,
			"osd.")
	}) {
		c.FlagHosts = nil // mons, which go one by one
	}
	return c
}

// acquire makes sure that the lease is held for a batch. OSDs that are in no failure domain need none. It gives up when
// the window closes: whoever holds the lease may take hours. It also returns, with the claim in the queue, when another
// look may bring a batch that the keeper would rather let go.
func (u *update) acquire(ctx workflow.Context, step rollout.Step, s activities.Survey) (bool, error) {
	want := u.claim(step)
	if u.job.listen(); u.lease.covers(want) {
		return true, nil
	}
	if !u.lease.waitsFor(want) {
		u.letGo(ctx)
	}
	if step.Domain.IsZero() {
		return true, nil
	}
	over := func() bool { return false }
	if !step.Broken && !s.Rules.WindowChanges.IsZero() {
		timerCtx, cancel := workflow.WithCancel(ctx)
		defer cancel()
		left := max(s.Rules.WindowChanges.Sub(workflow.Now(ctx)), time.Millisecond)
		over = workflow.NewTimerWithOptions(timerCtx, left,
			workflow.TimerOptions{Summary: "the maintenance window closes"}).IsReady
	}
	u.holds = activities.HoldLease
	unwanted := func() bool { return u.job.changed || u.job.Paused || over() }
	worthALook := u.worthALook()
	stop := func() bool { return unwanted() || worthALook() }
	granted, err := u.lease.acquire(ctx, want, stop, func() { u.report(ctx, "") })
	u.holds = ""
	switch {
	case u.lease.queued() && !unwanted() && err == nil:
		u.asking, u.why, u.job.goesOn = true, u.lease.Why, u.job.wait() // one wait, in spite of the look
		return false, nil
	case !granted && err == nil:
		u.lease.release(ctx)
	}
	u.why = ""
	return granted, err
}

// worthALook tells when to look again while the lease is waited for: when it is not granted because of daemons
// elsewhere that starting them anew may mend. They may be ours to start, and then they come first. Nothing in
// Kubernetes tells of them. A look that changed nothing is repeated when the keeper says something else, and with every
// other reminder.
func (u *update) worthALook() func() bool {
	c, reminders := u.lease, u.lease.Reminders+1
	return func() bool { return c.Mendable && (c.Why != u.why || c.Reminders > reminders) }
}

// stillAsks lets go of a claim that is in the queue if the last look has brought something else to do than what it is
// for.
func (u *update) stillAsks(ctx workflow.Context, next rollout.Step) {
	if u.asking && (next.Do != rollout.DoReplace || next.Domain != u.lease.Claim.Domain) {
		u.letGo(ctx)
		u.why = ""
	}
	u.asking = false
}

// letGo gives the lease back as it is. The batch is over: whoever of it is away, nobody waits for.
func (u *update) letGo(ctx workflow.Context) {
	u.lease.release(ctx)
	if u.state.Batch != nil {
		u.state.Batch, u.state.LastBatch = nil, workflow.Now(ctx)
	}
}

// heal gives the lease back when the storage is whole. With an OSD that a person excused, and that does not serve, it
// will not be before its data has moved, which is what the noout of the lease prevents.
func (u *update) heal(ctx workflow.Context) error {
	if u.lease.Stage != claimFree && u.excuses() {
		u.letGo(ctx)
		return nil
	}
	told := false
	// One that is healing may be hurt again: its pod is evicted by a drain, say, and somebody has to make it anew.
	over, err := u.lease.whole(ctx, func() bool { return u.job.changed }, func() {
		if !told { // once: how far it is changes by the second, and `lockkeeper status` tells
			told = true
			u.report(ctx, "")
		}
	})
	if err != nil || !over {
		return err
	}
	if u.state.Batch != nil {
		u.state.Batch, u.state.LastBatch = nil, workflow.Now(ctx)
	}
	return nil
}

// healFor lets the storage heal, and asks for the lease of the next batch meanwhile.
func (u *update) healFor(ctx workflow.Context, next rollout.Step) error {
	if !u.excuses() {
		if err := u.lease.finishFor(ctx, u.claim(next)); err != nil {
			return err
		}
	}
	return u.heal(ctx)
}

// excuses: the lease is held for an OSD for which nobody waits any more.
func (u *update) excuses() bool {
	return slices.ContainsFunc(u.lease.Claim.Daemons,
		func(osd string) bool { return slices.Contains(u.seen.Excused, osd) })
}
