package workflows

import (
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

// This file waits for the OSDs of a batch to come back.

// awaitOSDs waits for OSDs that do not serve. While the lease is held, for those only that it was granted for: a disk
// that broke elsewhere may take days to be replaced, and others wait for the lease.
func (u *update) awaitOSDs(ctx workflow.Context, osds []rollout.OSD) error {
	if u.lease.Stage == claimFree {
		return u.arrive(ctx, osds)
	}
	var own []rollout.OSD
	for _, o := range osds {
		if slices.Contains(u.lease.Claim.Daemons, o.Name) {
			own = append(own, o)
		}
	}
	if len(own) == 0 {
		return u.heal(ctx)
	}
	return u.arrive(ctx, own)
}

// lookWhileHalted is how often a rollout that has halted looks whom it waits for: others may be late, too, by now.
const lookWhileHalted = 10 * time.Minute

// arrive waits until OSDs serve and takes note of it. Those that take longer than their deadline halt the rollout,
// which goes on by itself as soon as they serve, or their spec is another one.
func (u *update) arrive(ctx workflow.Context, osds []rollout.OSD) error {
	u.job.enter(ctx, PhaseArrive)
	u.holds = ""
	names := strings.Join(keysOrNames(late(osds)), ", ")
	u.job.waitFor(ctx, names+toBe(osds))
	now := workflow.Now(ctx)
	deadline, here := u.deadline(ctx, osds)
	switch {
	case !here: // whoever took the nodes brings them back
		u.job.waitFor(ctx, names+" to serve: "+osds[0].Away)
		u.state.Halted, deadline = nil, now.Add(time.Hour)
	case !now.Before(deadline):
		u.halt(ctx)
		deadline = now.Add(lookWhileHalted)
	default:
		u.state.Halted = nil
		u.job.NextTimer, u.job.NextTimerDoes = deadline, "halt"
	}
	if again := u.seen.LookAgain; again > 0 && now.Add(again).Before(deadline) {
		deadline = now.Add(again)
	}
	in := activities.AwaitInput{OSDSet: u.osdSet, Cluster: u.lease.Cluster, Template: u.seen.Template, Keys: keys(osds)}
	if u.waiting() {
		in.LetGo = u.state.LetGo
	}
	awaitCtx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	arrival := begin(watching(awaitCtx, "wait for the OSDs"), rolling.AwaitOSDs, in)
	u.report(ctx, "") // that people read of it must not cost time
	// Before it halts it looks: a node that was cordoned meanwhile is the reason, and not the template.
	_, err := u.job.awaitAtMost(ctx, deadline.Sub(workflow.Now(ctx)), "progress deadline", func() bool {
		u.job.listen() // its noout had its time, say; what is broken stays broken
		return arrival.IsReady() || u.job.changed
	})
	u.job.NextTimer, u.job.NextTimerDoes = time.Time{}, ""
	if err != nil || !arrival.IsReady() {
		return err
	}
	var a activities.Arrival
	if err := arrival.Get(ctx, &a); err != nil || a.Moved {
		return err
	}
	if _, err := perform(thorough(ctx, "note that the OSDs serve"), u.job, rolling.ConfirmOSDs, in); err != nil {
		return err
	}
	u.state.Halted, u.state.Awaited, u.seen.Excused = nil, nil, append(u.seen.Excused, a.Excused...)
	u.noteBack(in.Keys)
	if u.lease.Stage == claimFree || u.excuses() {
		return u.heal(ctx)
	}
	u.lease.Stage = claimDone // the keeper hears of it together with what is next
	return nil
}

// toBe is what OSDs are waited for to be: there again, unless somebody wanted them gone for good.
func toBe(osds []rollout.OSD) string {
	if slices.ContainsFunc(osds, func(o rollout.OSD) bool { return !o.ForGood }) {
		return " to serve"
	}
	return " to be gone"
}

// late are those that kept the others waiting when somebody last looked: a batch halts for them alone. If all serve, it
// only has not been noted yet of any.
func late(osds []rollout.OSD) []rollout.OSD {
	away := slices.DeleteFunc(slices.Clone(osds), func(o rollout.OSD) bool { return o.Serves })
	if len(away) == 0 {
		return osds
	}
	return away
}

// deadline notes since when OSDs are awaited, and says until when they have time: from the one that is late first.
// Those whose node somebody took away do not count as long as it is away; here is false if that is true of all.
func (u *update) deadline(ctx workflow.Context, osds []rollout.OSD) (at time.Time, here bool) {
	now := workflow.Now(ctx)
	awaited := map[string]time.Time{}
	first := now
	for _, o := range osds {
		if o.Away != "" {
			continue
		}
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
	return first.Add(u.seen.Rules.ProgressDeadline), len(awaited) > 0
}
