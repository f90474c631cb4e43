package workflows

import (
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
)

// This file is what the keeper does at the end, and when the storage cluster does not answer.

// unsetNoout is for the end, where nothing depends on it.
func (k *keeper) unsetNoout(ctx workflow.Context, hosts []string) error {
	in := k.nooutInput(hosts, false)
	if in == nil {
		return nil
	}
	r, err := call(prompt(ctx, nooutWithin, clip("unset noout on "+strings.Join(hosts, ", "))), keeping.SwitchNoout, *in)
	if err == nil {
		k.switched(in, activities.Attempt[activities.NooutResult]{Begun: true, Result: r})
	}
	return err
}

// silent closes, since the storage cluster does not answer. Everybody hears of that all the same: the report, and the
// jobs, which must not take what was decided for what is.
func (k *keeper) silent(ctx workflow.Context, what string, err error) error {
	k.closeFirst(ctx, what)
	closed := budget.CloseFirst(k.state.Decision, what+": "+message(err))
	k.closed = &closed
	k.reportLater(ctx)
	k.followJobs(ctx)
	k.notify(ctx)
	return err
}
