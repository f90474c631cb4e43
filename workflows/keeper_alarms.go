package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/internal/budget"
)

// This file is what makes the keeper doubt what was proved, or close before it looks.

// doubt takes note of an alarm, if there was one: nothing that was proved before it counts.
func (k *keeper) doubt(ctx workflow.Context) bool {
	alarm := k.alarm
	k.alarm = false
	if alarm {
		k.state.Doubted = workflow.Now(ctx)
		k.state.Watched.Health.Fresh = false
		k.forgetLife()
	}
	return alarm
}

// answerAlarm: a daemon's pod stopped serving. It may be replaced and ready again before Ceph has noticed that its
// daemon was away, so what was proved of the data before does not count any more. And at rest nobody else may go until
// somebody has looked: it may have been the one that may go anywhere, and if its domain is to open, that begins from a
// closed budget anyway.
func (k *keeper) answerAlarm(ctx workflow.Context) {
	if !k.doubt(ctx) {
		return
	}
	k.restartWatch()
	k.startWatch(ctx) // now: the sooner the proof begins anew, the sooner it is made
	if k.state.Applied != nil && k.state.Applied.Mode == budget.ModeDefault {
		k.closeFirst(ctx, "a storage daemon's pod stopped serving")
	}
}

// noticeSilence: while the governors were silent nobody could tell them who went down.
func (k *keeper) noticeSilence(ctx workflow.Context) {
	v := k.observed.Seen.View
	if !v.Silent.After(k.state.Silent) && (v.Unavailable == "" || k.state.Unheard) {
		return
	}
	if v.Silent.After(k.state.Silent) {
		k.state.Silent = v.Silent
	}
	k.state.Unheard = true
	k.alarm = true
	k.doubt(ctx)
	k.restartWatch()
}

// noticeVanished: a daemon has no pod any more, and nobody saw it leave. A pod that no controller looks after leaves
// nothing behind; whether its daemon is gone with it, only a sign of life can tell.
func (k *keeper) noticeVanished(ctx workflow.Context) {
	v := k.observed.Seen.View
	if v.Unavailable != "" {
		return
	}
	if v.Unseen > k.state.Unseen {
		k.state.Unheard, k.alarm = true, true
		k.doubt(ctx)
		k.restartWatch()
	}
	k.state.Unseen = v.Unseen
}

// noticeBook compares what the budgets are with what was last written. An alarm that somebody wrote on them counts as
// one that was told: a signal may be late, or Temporal away. And a budget that is not as it was left is one of which
// nobody knows what it says.
func (k *keeper) noticeBook(ctx workflow.Context) {
	book := k.observed.Book
	if alarms := book.Alarms(); alarms != k.state.AnsweredAlarms {
		// Whatever the budgets say now: an opening that the alarm refused leaves them closed, and the proof that it stood on.
		k.alarm = true
		k.doubt(ctx)
		k.restartWatch()
		k.state.AnsweredAlarms = alarms
	}
	if !book.Same(k.state.AppliedBook) {
		k.state.Applied = nil
	}
}

// answerTampering mends the budgets before it looks: while Ceph has no quorum a look takes seconds, in which anybody
// could go.
func (k *keeper) answerTampering(ctx workflow.Context) {
	tampered := k.tampered
	k.tampered = false
	if tampered && !k.aside {
		k.closeFirst(ctx, "somebody changed or deleted a budget of lockkeeper")
	}
}

// answerMuteness does not wait for a look to find out once more that nobody answers.
func (k *keeper) answerMuteness(ctx workflow.Context) {
	mute := k.mute
	k.mute = ""
	if mute == "" {
		return
	}
	// Whoever looks next may be another worker, which has heard of no silence.
	k.state.Unheard = true
	if k.state.Applied == nil || k.state.Applied.Mode != budget.ModeClosed {
		k.closeFirst(ctx, mute)
	}
}

// closeFirst closes without a look, unless the budgets are not ours to write.
func (k *keeper) closeFirst(ctx workflow.Context, why string) {
	if k.state.Conflict != "" || !k.observed.Settings.ManagePodBudgets {
		return
	}
	step := budget.CloseFirst(k.state.Decision, why)
	r, err := k.guardPods(quick(ctx, step.Message), step)
	if err != nil {
		return // what it says now is not known, which is what the pass that follows begins with
	}
	k.applied(step, r)
}
