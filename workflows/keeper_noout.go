package workflows

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
)

// This file is what the keeper does at the end, and when the storage cluster does not answer.

// undoFlags unsets noout at the end, and returns what could not be undone.
func (k *keeper) undoFlags(ctx workflow.Context) (waits []string) {
	k.refused = nil
	if err := k.unsetNoout(ctx, k.flagged()); err != nil {
		return []string{fmt.Sprintf("noout on %s to be unset: %s", strings.Join(k.flagged(), ", "), message(err))}
	}
	return k.forgetFlags(workflow.Now(ctx))
}

// flagsLeft says what noout may be left behind by a policy that is gone, and for which reason; "": none.
func (k *keeper) flagsLeft(because string) string {
	var hosts []string
	for _, n := range k.state.Memory.Noout {
		hosts = append(hosts, n.Host)
	}
	if len(hosts) == 0 {
		return ""
	}
	return fmt.Sprintf("noout may be left in Ceph (%s). If that Ceph lives on: ceph osd unset-group noout %s", because,
		strings.Join(hosts, " "))
}

// letFlagsGo takes away noout of a policy that is no longer in charge. Where the policy means another storage cluster
// now, it is only forgotten.
func (k *keeper) letFlagsGo(ctx workflow.Context) error {
	if k.movedOn() {
		k.abandonFlags(workflow.Now(ctx))
	}
	k.refused = nil
	if err := k.unsetNoout(ctx, k.flagged()); err != nil {
		return err
	}
	return k.refusal()
}

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
	_ = k.closeFirst(ctx, what)
	closed := budget.CloseFirst(k.state.Decision, what+": "+message(err))
	k.closed = &closed
	k.reportLater(ctx)
	k.followJobs(ctx)
	k.notify(ctx)
	return err
}
