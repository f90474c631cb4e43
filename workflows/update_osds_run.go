package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

// This file is a rollout's runbook: look, do the next thing, look again.

func (u *update) run(ctx workflow.Context) error {
	// Whoever starts a rollout also tells it to look, in case that it runs already. That is no reason to look twice.
	if err := letSignalsIn(ctx); err != nil {
		return err
	}
	for {
		if u.job.changed { // what was without effect may have one now
			u.stuck = repeats{}
		}
		s, err := u.survey(ctx)
		if err != nil {
			return err
		}
		u.stillAsks(ctx, s.Next)
		if done, err := u.step(ctx, s); done || err != nil {
			return err
		}
	}
}

func (u *update) survey(ctx workflow.Context) (activities.Survey, error) {
	u.job.enter(ctx, PhaseSurvey)
	u.job.changed = false
	in := activities.SurveyInput{OSDSet: u.osdSet, Skip: u.state.Skip, CanaryOf: u.state.Canary.Template}
	if !u.state.Canary.Judged { // or else nothing about it is worth a question
		in.Canary = u.state.Canary.Key
	}
	if u.waiting() {
		in.LetGo, in.Done = u.state.LetGo, u.state.Result.Replaced-len(u.state.LetGo)
	}
	s, err := perform(thorough(ctx, "look at the OSDs of "+u.osdSet.Name), u.job, rolling.SurveyOSDs, in)
	if err != nil {
		return s, err
	}
	if s.Cluster.Name != "" {
		u.lease.Cluster = s.Cluster
	}
	if s.Template != "" && s.Template != u.state.SkipOf {
		if u.state.SkipOf != "" && len(u.state.Skip) > 0 { // who excused an OSD from another template did not know this one
			u.state.Skip, u.job.changed = nil, true
		}
		u.state.SkipOf = s.Template
	}
	for _, osd := range s.Skipped {
		if u.maySkip(osd) { // a person excused it, in a run before this one
			u.state.Skip, u.job.changed = append(u.state.Skip, osd), true
		}
	}
	if !s.Counted && s.Template == u.seen.Template { // the last ones are the best that is known
		s.Counts = u.seen.Counts
	}
	u.seen = s
	return s, nil
}

// step does the next thing. done means that there is none.
func (u *update) step(ctx workflow.Context, s activities.Survey) (done bool, err error) {
	if !s.Found || s.Deleting {
		u.state.Stopping = nil
	}
	if b := u.state.Stopping; b != nil {
		b.Step.OSDs = b.Batch.OSDs
		return false, u.carryOut(ctx, b.Step, b.Batch)
	}
	if u.job.changed {
		return false, nil
	}
	if !s.Found || s.Deleting {
		u.state.Result.Outcome = OutcomeGone
		return true, nil
	}
	if err := u.tidy(ctx, s); err != nil {
		return false, err
	}
	switch {
	case len(s.Refused) > 0:
		// Nothing is touched, and what runs stays. A CephOSD can be mended; the input of a restart cannot.
		r := s.Refused[0]
		if u.osdSet.Kind == activities.OSDSetDeployments {
			return false, refuse(&r)
		}
		return false, u.rest(ctx, toBeMended(r), u.underWay())
	case s.Unavailable != "" && u.healing():
		// The batch is done, which the keeper does not know yet. It waits for the storage cluster as well as we could.
		return false, u.heal(ctx)
	case s.Unavailable != "":
		// In the middle of a batch, too, and mons elect while OSDs are away: the lease, and with it noout, stays.
		return false, u.rest(ctx, wait{
			phase: PhaseRest, holds: activities.HoldStorage, first: 10 * time.Second, most: time.Minute,
			what: "the storage cluster: " + s.Unavailable,
		}, true)
	case u.stuck.again(ctx, s):
		return false, u.rest(ctx, wait{
			phase: PhaseRest, holds: activities.HoldStorage, first: 10 * time.Second, most: 5 * time.Minute,
			what: "another look, since nothing comes of it: " + s.Next.Why,
		}, u.underWay())
	}
	u.forgetOtherThan(s.Next.Do)
	switch s.Next.Do {
	case rollout.DoCreate:
		return false, u.create(ctx, s.Next)
	case rollout.DoAwait:
		return false, u.awaitOSDs(ctx, s.Next.OSDs)
	case rollout.DoReplace:
		return false, u.replace(ctx, s)
	case rollout.DoNothing:
	}
	u.state.Halted, u.state.Unspared = nil, time.Time{}
	if err := u.heal(ctx); err != nil {
		return false, err
	}
	if err := letSignalsIn(ctx); err != nil || u.job.changed || u.lease.Stage != claimFree {
		return false, err
	}
	if !s.Counts.Settled() && s.LookAgain > 0 {
		return false, u.rest(ctx, wait{phase: PhaseRest, first: s.LookAgain, most: time.Hour, what: s.Next.Why}, false)
	}
	if len(s.Superfluous) > 0 {
		x := s.Superfluous[0]
		what := fmt.Sprintf("%s, which left the spec, to be safe to destroy: %s", x.Key, x.Why)
		if u.waiting() {
			what = fmt.Sprintf("%s, which somebody wants gone: %s", x.Key, x.Why)
		}
		return false, u.rest(ctx, wait{
			phase: PhaseRest, first: max(s.LookAgain, time.Minute), most: time.Hour, what: what,
		}, false)
	}
	u.state.Result.Outcome = OutcomeDone
	return true, nil
}

// forgetOtherThan forgets what was waited for in doing something else than what is next.
func (u *update) forgetOtherThan(next rollout.Do) {
	if next != rollout.DoCreate {
		u.state.RefusedSince = time.Time{}
	}
	if next != rollout.DoAwait {
		u.state.Awaited = nil
	}
}

// tidy takes away what takes nothing from anybody.
func (u *update) tidy(ctx workflow.Context, s activities.Survey) error {
	if len(s.Discard) > 0 {
		if _, err := perform(thorough(ctx, "delete duplicate pods"), u.job, rolling.DiscardPods,
			activities.KeysInput{OSDSet: u.osdSet, Names: s.Discard}); err != nil {
			return err
		}
	}
	if s.Unnoted > 0 {
		if _, err := perform(thorough(ctx, "note what is known of the pods"), u.job, rolling.NotePods, u.osdSet); err != nil {
			return err
		}
	}
	if len(s.Removable) > 0 {
		if _, err := perform(thorough(ctx, "delete the pods of OSDs that left the spec"), u.job, rolling.RemoveOSDs,
			activities.KeysInput{OSDSet: u.osdSet, Names: s.Removable}); err != nil {
			return err
		}
	}
	return nil
}

// create makes missing pods. That takes nothing from anybody, so nothing holds it back.
func (u *update) create(ctx workflow.Context, step rollout.Step) error {
	made, err := perform(thorough(ctx, clip(step.Why)), u.job, rolling.CreatePods,
		activities.KeysInput{OSDSet: u.osdSet, Names: keys(step.OSDs)})
	switch {
	case err != nil:
		return err
	case made.Refused != nil && u.underWay():
		return u.rest(ctx, refusedNow(step, *made.Refused), true)
	case made.Refused != nil:
		u.seen.Refused = append(u.seen.Refused, *made.Refused)
		return u.rest(ctx, u.refusedAgain(ctx, step, *made.Refused), u.underWay())
	case len(made.Hindered) > 0:
		x := made.Hindered[0]
		return u.rest(ctx, wait{phase: PhaseRest, first: 10 * time.Second, most: 5 * time.Minute, what: x.Key +
			" to get a pod: " + x.Why}, u.underWay())
	}
	return nil
}

// repeats notices that the same step is decided again and again, at once, and so has no effect.
type repeats struct {
	step  string
	at    time.Time
	times int
}

const mostRepeats = 5

func (r *repeats) again(ctx workflow.Context, s activities.Survey) bool {
	now := workflow.Now(ctx)
	step := fmt.Sprint(s.Template, s.Next.Do, keys(s.Next.OSDs), s.Discard, s.Removable, s.Unnoted)
	if step != r.step || now.Sub(r.at) > 5*time.Second || s.Next.Do == rollout.DoNothing {
		*r = repeats{step: step}
	}
	r.at = now
	r.times++
	return r.times > mostRepeats
}
