package workflows

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
)

// This file is what the keeper does at the end, and when the storage cluster does not answer.

// undoFlags unsets flags at the end, and returns what could not be undone.
func (k *keeper) undoFlags(ctx workflow.Context) (waits []string) {
	k.refused = nil
	if err := k.unsetFlag(ctx, k.flaggedHosts()); err != nil {
		return []string{fmt.Sprintf("%s on %s to be unset: %s", k.flag(), strings.Join(k.flaggedHosts(), ", "), message(err))}
	}
	return k.forgetFlags(workflow.Now(ctx))
}

// flagsLeft says what flags may be left behind by a policy that is gone, and for which reason; "": none.
func (k *keeper) flagsLeft(because string) string {
	var hosts []string
	for _, n := range k.state.Memory.Flags {
		hosts = append(hosts, n.Host)
	}
	if len(hosts) == 0 {
		return ""
	}
	flag := k.flagKind()
	return fmt.Sprintf("%s may be left in %s (%s). If that %[2]s lives on: %[4]s %[5]s", flag.Name, flag.Of, because,
		flag.Undo, strings.Join(hosts, " "))
}

// letFlagsGo takes away flags of a policy that is no longer in charge. Where the policy means another storage cluster
// now, it is only forgotten.
func (k *keeper) letFlagsGo(ctx workflow.Context) error {
	if k.movedOn() {
		k.abandonFlags(workflow.Now(ctx))
	}
	k.refused = nil
	if err := k.unsetFlag(ctx, k.flaggedHosts()); err != nil {
		return err
	}
	return k.refusal()
}

// unsetFlag is for the end, where nothing depends on it.
func (k *keeper) unsetFlag(ctx workflow.Context, hosts []string) error {
	in := k.flagInput(hosts, false)
	if in == nil {
		return nil
	}
	r, err := call(prompt(ctx, switchWithin, clip("unset "+k.flag()+" on "+strings.Join(hosts, ", "))), switchFlag, *in)
	if err == nil {
		k.switched(in, activities.Attempt[activities.FlagResult]{Begun: true, Result: r})
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
