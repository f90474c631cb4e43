package workflows

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/precedence"
)

// This file is the keeper's claim to its storage cluster, by which policies of different namespaces that mean the same
// one are told apart. The order of the steps is in package precedence. Observations of older workers say nothing of
// claims: then nothing is claimed.

// claim makes this policy's claim that of the storage cluster that was seen. apply writes it down before it does
// anything else, and nothing opens before a look has found it there. written tells that this look must follow at once.
func (k *keeper) claim() (written bool) {
	o := &k.observed
	if o.Claim == nil || o.Seen.ID == "" {
		return false
	}
	want := precedence.Claim{ID: o.Seen.ID, Held: true}
	// so that one that somebody took away is written again
	k.state.Memory.Claim, k.state.Reported.Memory.Claim = want, *o.Claim
	if *o.Claim == want {
		k.unclaimed = 0
		return false
	}
	if k.unclaimed++; k.unclaimed > 1 {
		o.Seen.View.NotInCharge += ", although it was written. Is the CustomResourceDefinition of this version installed " +
			"(deploy/crds)?"
		return false
	}
	return true
}

// movedOn tells whether the policy means another storage cluster than the one that this keeper looks after.
func (k *keeper) movedOn() bool {
	c := k.state.Memory.Claim
	return k.observed.Claim != nil && c.Held && k.observed.Seen.ID != "" && k.observed.Seen.ID != c.ID
}

// leaveOldCluster takes back what was done for the storage cluster that the policy meant before. The claim to the new
// one comes after that.
func (k *keeper) leaveOldCluster(ctx workflow.Context) error {
	d := budget.Decision{Mode: budget.ModeClosed, Reason: budget.ReasonNotInCharge, Message: fmt.Sprintf(
		"the policy now means the storage cluster with the ID %s, and meant %s before; what was done for that one is taken "+
			"back first", k.observed.Seen.ID, k.state.Memory.Claim.ID)}
	if err := k.retreat(ctx, d); err != nil {
		return err
	}
	k.state.Memory.Claim, k.aside, k.again = precedence.Claim{ID: k.observed.Seen.ID}, false, true
	return k.report(ctx)
}

// abandonNoout forgets noout flags on a storage cluster that can no longer be reached under this policy, and tells
// people. To unset them where the policy points now would be to touch flags of somebody else.
func (k *keeper) abandonNoout(ctx workflow.Context) {
	if hosts := k.flagged(); len(hosts) > 0 {
		k.news = append(k.news, activities.Event{
			Reason: ReasonLeftBehind, Warning: true, At: workflow.Now(ctx),
			Message: clipTo(fmt.Sprintf(
				"noout may be left in the Ceph cluster with the ID %s, which this policy no longer means. There: ceph osd "+
					"unset-group noout %s",
				k.state.Memory.Claim.ID, strings.Join(hosts, " ")), mostEvent),
		})
	}
	k.state.Memory.Noout = nil
}

// contestedEvery is how soon a keeper looks again that another policy stands in the way of. The watcher tells sooner;
// but one that is restricted to a namespace sees no policy of another.
const contestedEvery = time.Minute

// lookAgain sets the timer of a keeper that another policy stands in the way of.
func (k *keeper) lookAgain(ctx workflow.Context) {
	if !k.observed.SecondElsewhere && k.observed.Seen.View.NotInCharge == "" {
		return
	}
	if at := workflow.Now(ctx).Add(contestedEvery); k.next.IsZero() || at.Before(k.next) {
		k.next = at
	}
}
