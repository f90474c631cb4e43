package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/internal/budget"
)

// This file is what the keeper makes of doubts (internal/doubt): what it knows as of now, and what it closes before it
// looks.

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
