package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/doubt"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what the keeper makes of doubts (internal/doubt): what it knows as of now, and what it closes before it
// looks.

func (k *keeper) doubt(ctx workflow.Context, kind doubt.Kind, why string) {
	k.state.Doubts.Raise(workflow.Now(ctx), kind, why)
}

// watched is what the watch saw, and was proved since the last doubt about the data.
func (k *keeper) watched() activities.Watched {
	w := k.state.Watched
	w.Health.Fresh = w.Health.Fresh && k.state.WatchedAsOf >= k.state.Doubts.Data
	return w
}

// health is that of the data, as far as it was proved since the last doubt about it.
func (k *keeper) health() storage.Health { return k.watched().Health }

// answerDoubts closes before it looks, where nobody may go until somebody has looked; and the sooner a proof begins
// anew, the sooner it is made.
func (k *keeper) answerDoubts(ctx workflow.Context) {
	if k.watchAsOf < k.state.Doubts.Data {
		k.startWatch(ctx)
	}
	if why, closes := k.state.Doubts.Answer(k.state.Applied); closes && !k.aside {
		k.closeFirst(ctx, why)
	}
}

// notice takes in what the look tells of what happened before it. A budget that is not as it was left is one of which
// nobody knows what it says.
func (k *keeper) notice(ctx workflow.Context) {
	k.state.Doubts.Look(workflow.Now(ctx), k.observed.Seen.View, k.observed.Book)
	if !k.observed.Book.Same(k.state.AppliedBook) {
		k.state.Applied = nil
	}
}

// closeFirst closes without a look, unless the budgets are not ours to write.
func (k *keeper) closeFirst(ctx workflow.Context, why string) {
	if k.state.Conflict != "" || !k.observed.Settings.ManagePodBudgets {
		return
	}
	step := budget.CloseFirst(k.state.Decision, why)
	asOf := k.state.Doubts.Last
	r, err := k.guardPods(quick(ctx, step.Message), step)
	if err != nil {
		return // what it says now is not known, which is what the pass that follows begins with
	}
	k.applied(step, asOf, r)
}
