package workflows

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

// This file is what a rollout waits for between two batches, and what it tells of itself.

// wait is a wait between two looks. If nobody tells of a change it is over after first, and when nothing has changed
// then the next one of its kind takes twice as long, at most most.
type wait struct {
	phase       string
	holds       string // one of activities.HoldPaused, …, or ""
	first, most time.Duration
	what        string
}

// rested is the last wait between two looks. To look in between, and to find nothing new, does not begin another one.
type rested struct {
	Phase string    `json:"phase,omitempty"`
	Holds string    `json:"holds,omitempty"`
	Since time.Time `json:"since,omitzero"`
	Times int       `json:"times,omitempty"`
}

func toBeMended(r input.Error) wait {
	// What is wrong may be elsewhere, too: a PriorityClass that is missing. Nobody tells when that is mended.
	return wait{
		phase: PhaseRest, first: time.Minute, most: time.Hour,
		what: fmt.Sprintf("the spec to be mended: %s: %q: %s", r.Field, r.Value, r.Allowed),
	}
}

// refusedNow is for a pod that the API server refuses although it accepted the rehearsal of the batch. The spec is not
// to blame: an admission webhook answers differently each time, say, or a quota is used up for a moment.
func refusedNow(step rollout.Step, r input.Error) wait {
	return wait{
		phase: PhaseRest, first: soonest, most: latest,
		what: fmt.Sprintf("%s to get a pod, which is refused now and was not when it was rehearsed: %s",
			step.OSDs[0], r.Allowed),
	}
}

// refusedAgain is for a pod that is missing, and refused, outside of a batch. Its OSD is down: a drain evicted it, say,
// and waits for it with noout and the lease. The spec may be wrong, or not, so the next tries come soon at first.
func (u *update) refusedAgain(ctx workflow.Context, step rollout.Step, r input.Error) wait {
	w := toBeMended(r)
	w.first = soonest
	w.what = fmt.Sprintf("%s to get a pod, which is refused: %s: %q: %s", step.OSDs[0], r.Field, r.Value, r.Allowed)
	if u.state.RefusedSince.IsZero() {
		u.state.RefusedSince = workflow.Now(ctx)
	}
	if workflow.Now(ctx).Sub(u.state.RefusedSince) < hurried {
		w.most = latest
	}
	return w
}

// hurried is for how long a pod that is missing is tried every half a minute: as long as a noout lasts by default.
const hurried = 30 * time.Minute

// While OSDs are down for a rollout, what failed is tried again this soon, and at most so much later.
const (
	soonest = 2 * time.Second
	latest  = 30 * time.Second
)

// hurries bounds a wait for something that failed while OSDs are down for us.
func (u *update) hurries(w wait) wait {
	failed := w.holds == "" || w.holds == activities.HoldStorage
	if u.underWay() && failed {
		w.first, w.most = min(w.first, soonest), min(w.most, latest)
	}
	return w
}

// underWay: OSDs that were stopped under the lease have not come back.
func (u *update) underWay() bool {
	return u.lease.held() && u.state.Batch != nil
}

// rest waits. Unless it has to keep it, it gives the lease back before, since others may be waiting for it.
func (u *update) rest(ctx workflow.Context, w wait, keep bool) error {
	if !keep {
		u.letGo(ctx)
	}
	w = u.hurries(w)
	u.job.enter(ctx, w.phase)
	u.job.waitFor(ctx, w.what)
	r := &u.state.Rested
	if r.Phase == w.phase && r.Holds == w.holds && r.Times > 0 {
		u.job.elaborate(ctx, w.what, r.Since)
	} else {
		*r = rested{Phase: w.phase, Holds: w.holds, Since: u.job.Since}
	}
	most := min(w.first<<min(r.Times, 16), max(w.most, w.first))
	r.Times++
	u.job.NextTimer, u.job.NextTimerDoes, u.holds = workflow.Now(ctx).Add(most), "look again", w.holds
	u.report(ctx, "")
	approved, paused := u.state.Canary.Approved, u.job.Paused
	told, err := u.job.awaitAtMost(ctx, most, clip(w.what), func() bool {
		return u.job.changed || u.state.Canary.Approved != approved || u.job.Paused && !paused
	})
	if told || errors.Is(err, errFull) {
		r.Times = 1 // look again soon, and remember since when
	}
	u.job.NextTimer, u.job.NextTimerDoes = time.Time{}, ""
	return err
}

// pause keeps the next batch from beginning. What is under way goes on: OSDs that are away come back, and the lease,
// which others may wait for, is given back when their data is whole.
func (u *update) pause(ctx workflow.Context, keep bool) error {
	if !keep {
		u.letGo(ctx)
	}
	u.job.enter(ctx, PhaseRest)
	u.job.waitFor(ctx, pausedWait)
	u.holds = activities.HoldPaused
	u.report(ctx, "")
	return u.job.await(ctx, func() bool { return !u.job.Paused || u.job.changed })
}

// heldBack waits for whatever keeps the next batch from beginning although nothing is wrong. What is broken anyway is
// replaced in spite of windows, pauses and canaries: it takes nothing away, and the data is the safer the sooner it is
// back.
func (u *update) heldBack(ctx workflow.Context, s activities.Survey) (held bool, err error) {
	keep := u.keeps(s.Next)
	if u.job.Paused {
		return true, u.pause(ctx, keep)
	}
	late := func(holds, what string) error {
		first := soon(s.Next, time.Hour)
		return u.rest(ctx, wait{phase: PhaseRest, holds: holds, first: first, most: time.Hour, what: what}, keep)
	}
	until := func(holds string, at time.Time, what string) error {
		d := at.Sub(workflow.Now(ctx))
		return u.rest(ctx, wait{phase: PhaseRest, holds: holds, first: soon(s.Next, d), most: d, what: what}, keep)
	}
	if asked, err := u.consent(ctx, s); asked || err != nil {
		return true, err
	}
	if s.Rules.Paused {
		return true, late(activities.HoldPaused, "spec.paused to be removed")
	}
	if s.Next.Broken {
		return false, nil
	}
	next := u.state.LastBatch.Add(s.Rules.PauseBetween)
	switch {
	case s.Rules.Shut && s.Rules.WindowChanges.IsZero():
		return true, late(activities.HoldWindow, "a maintenance window: none will ever open")
	case s.Rules.Shut:
		return true, until(activities.HoldWindow, s.Rules.WindowChanges,
			"the maintenance window that opens at "+clock(s.Rules.WindowChanges))
	case u.windowIsOver(ctx, s):
		return true, nil // the next look says when it opens again
	case !u.state.LastBatch.IsZero() && workflow.Now(ctx).Before(next):
		return true, until(activities.HoldPause, next, "the pause between two batches to be over at "+clock(next))
	case u.state.Canary.Template == s.Template && !u.state.Canary.Judged:
		return u.judge(ctx, s)
	}
	return false, nil
}

// soon is when to look again at a batch that is held back: an OSD whose pod is not ready may be down by now, and nobody
// tells.
func soon(next rollout.Step, most time.Duration) time.Duration {
	if slices.ContainsFunc(next.OSDs, func(o rollout.OSD) bool { return !o.Serves }) {
		return min(most, unreadyMayBeDown)
	}
	return most
}

// unreadyMayBeDown is a little more than Ceph takes to notice that an OSD is dead (osd_heartbeat_grace, 20 s).
const unreadyMayBeDown = 30 * time.Second

// windowIsOver tells whether the window that was open at the last look has closed since.
func (u *update) windowIsOver(ctx workflow.Context, s activities.Survey) bool {
	return !s.Rules.Shut && !s.Rules.WindowChanges.IsZero() && !workflow.Now(ctx).Before(s.Rules.WindowChanges)
}

// judge gives the canary its time, and a person the last word if that is wanted. A daemon that starts anew meanwhile
// has not proved anything: its time begins anew, and who approved it did not know.
func (u *update) judge(ctx workflow.Context, s activities.Survey) (held bool, err error) {
	c := &u.state.Canary
	if s.CanaryLife == "" {
		*c = Canary{} // a person excused it; the next OSD is the canary
		u.job.changed = true
		return true, nil
	}
	if c.Life != s.CanaryLife {
		if c.Life != "" {
			c.Restarts++
		}
		c.Life, c.Whole, c.Approved = s.CanaryLife, workflow.Now(ctx), false
	}
	if s.CanaryTrouble != "" {
		held, err = u.mistrust(ctx, s)
		c.Judged = !held && err == nil
		return held, err
	}
	c.Troubled = time.Time{}
	soaked, again := c.Whole.Add(s.Rules.Soak), ""
	if c.Restarts > 0 {
		again = fmt.Sprintf("; it has started anew %d times", c.Restarts)
	}
	switch {
	case workflow.Now(ctx).Before(soaked):
		d := soaked.Sub(workflow.Now(ctx))
		return true, u.rest(ctx, wait{
			phase: PhaseJudge, holds: activities.HoldSoak, first: d, most: d,
			what: fmt.Sprintf("the canary %s to have served until %s%s", c.OSD, clock(soaked), again),
		}, false)
	case s.Rules.Approval && !c.Approved:
		return true, u.rest(ctx, wait{
			phase: PhaseJudge, holds: activities.HoldApproval, first: time.Hour, most: time.Hour,
			what: fmt.Sprintf("a person to approve the canary %s, which serves since %s%s: `lockkeeper approve %s`", c.OSD,
				clock(c.Whole), again, u.name()),
		}, false)
	}
	c.Judged = true
	return false, nil
}

// mistrust waits for what the storage cluster has against the canary to be over, unless a person approves of it all the
// same. Its time begins anew, and who approved it before did not know. When that takes too long the rollout halts: a
// person has to look at it.
func (u *update) mistrust(ctx workflow.Context, s activities.Survey) (mistrusted bool, err error) {
	c, now := &u.state.Canary, workflow.Now(ctx)
	if c.Troubled.IsZero() {
		c.Troubled, c.Approved = now, false
	}
	if c.Approved {
		return false, nil
	}
	c.Whole = now
	if late := c.Troubled.Add(s.Rules.ProgressDeadline); !now.Before(late) {
		u.state.Halted = &activities.Halt{
			Since:  late,
			Reason: fmt.Sprintf("the canary has not been well since %s: %s", clock(c.Troubled), s.CanaryTrouble),
		}
	}
	return true, u.rest(ctx, wait{
		phase: PhaseJudge, holds: activities.HoldSoak, first: 10 * time.Second, most: time.Minute,
		what: fmt.Sprintf("the canary %s to be well: %s; `lockkeeper approve %s` says that it is", c.OSD,
			s.CanaryTrouble, u.name()),
	}, false)
}

// clock is a time for people. Nobody knows where they are, so it says that it is in UTC.
func clock(t time.Time) string { return t.UTC().Truncate(time.Second).Format(time.RFC3339) }

// name is how people call the rollout.
func (u *update) name() string {
	switch u.osdSet.Kind {
	case activities.OSDSetDeployments:
		return jobs.RestartOSDs.ID(u.osdSet.Namespace)
	case activities.OSDSetWaiting:
		return jobs.RestartWaiting.ID(u.osdSet.Namespace, u.osdSet.Policy)
	case activities.OSDSetCephOSD:
	}
	return u.osdSet.Namespace + "/" + u.osdSet.Name
}

// report writes the status, if it says anything new. It is for people: that it cannot be written stops nothing, and is
// known soon.
func (u *update) report(ctx workflow.Context, outcome string) {
	if u.osdSet.Kind != activities.OSDSetCephOSD {
		return // they have no status: Temporal tells how it goes
	}
	r := activities.OSDSetReport{
		OSDSet: u.osdSet, WorkflowID: workflow.GetInfo(ctx).WorkflowExecution.ID, Generation: u.seen.Generation,
		Template: u.seen.Template, Phase: u.job.Phase, Message: u.job.WaitsFor, Since: u.job.Since, Counts: u.seen.Counts,
		Batch: u.state.Batch, Halted: u.state.Halted, Refused: u.seen.Refused, Warned: u.seen.Warned, Foreign: u.seen.Foreign,
		Waiting: u.seen.Superfluous, Counted: u.seen.Counted, Holds: u.holds, Outcome: outcome, Skipped: u.state.Skip,
	}
	if outcome != "" {
		r.Phase, r.Message = outcome, ""
	}
	if !u.seen.Found || reflect.DeepEqual(r, u.wrote) {
		return // a rollout that has seen nothing yet knows less than the status
	}
	u.wrote = r
	if _, err := call(quick(ctx, "write the status"), rolling.ReportOSDs, r); err != nil {
		u.wrote = activities.OSDSetReport{}
		workflow.GetLogger(ctx).Warn("cannot write the status", "error", err)
	}
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
