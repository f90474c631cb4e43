package workflows

import (
	"slices"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
)

// AttachedByHand is what has become of what somebody attached to the node of a job by hand.
type AttachedByHand struct {
	Detached []string `json:"detached,omitempty"`
	// NotDetached is why something may be attached still.
	NotDetached string `json:"notDetached,omitempty"`
}

// detachByHand has what somebody attached by hand leave the node of a job, in each storage cluster whose policy says
// so: nobody else ends that, and as long as it is there the node cannot be emptied. Where it may not be done, or not
// now, the job goes on: what it waits for then the keeper knows.
func (j *job) detachByHand(ctx workflow.Context, t activities.Target, so *AttachedByHand) error {
	so.NotDetached = ""
	for _, on := range t.Storage() {
		if !on.Detach {
			continue
		}
		d, err := perform(persistent(ctx, "detach what was attached to "+t.Node+" by hand"), j, draining.DetachByHand,
			activities.DetachInput{Cluster: on.Cluster, Node: t.Node, UID: t.UID})
		if err != nil {
			return err
		}
		so.hear(t.Node, d)
	}
	return nil
}

// hear adds what one of the node's storage clusters did.
func (so *AttachedByHand) hear(node string, d activities.Detached) {
	so.Detached = append(so.Detached, d.Names...)
	slices.Sort(so.Detached)
	so.Detached = slices.Compact(so.Detached)
	switch {
	case d.Refused == "":
	case so.NotDetached == "":
		so.NotDetached = "what was attached to " + node + " by hand stays attached: " + d.Refused
	default:
		so.NotDetached += "; " + d.Refused
	}
}
