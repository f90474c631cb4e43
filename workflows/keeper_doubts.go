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
	number := k.closesNumber && k.openForMachines() != nil
	if why, closes := k.state.Doubts.Answer(k.state.Applied, number); closes && !k.aside {
		_ = k.closeFirst(ctx, why)
	}
}

// closeFirst closes without a look, unless the budgets are not ours to write. If that fails, what they say is not
// known, which is what the pass that follows begins with.
func (k *keeper) closeFirst(ctx workflow.Context, why string) error {
	if k.state.Conflict != "" || !k.state.Manages {
		return nil
	}
	step := budget.CloseFirst(k.state.Decision, why)
	asOf := k.state.Doubts.Last
	r, err := k.guardPods(quick(ctx, step.Message), step)
	if err == nil {
		k.applied(step, asOf, r)
	}
	return err
}
