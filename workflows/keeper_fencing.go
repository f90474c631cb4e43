package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
)

// Between a job that fences and the keeper. A job asks with the update RequestFence, through an activity, as for the
// lease; from then on the two talk by signals.
const (
	// UpdateRequestFence asks for the release of a node's Machine; it answers at once. Takes a FenceRequest.
	UpdateRequestFence = "request-fence"
	// SignalFence is what the keeper sends to a job: a FenceNotice.
	SignalFence = "fence"
	// SignalEndFence tells the keeper that the job needs no release any more. Takes a FenceRef.
	SignalEndFence = "end-fence"
)

// answerFences serves what jobs ask about Machines.
func (k *keeper) answerFences(ctx workflow.Context) error {
	return workflow.SetUpdateHandlerWithOptions(ctx, UpdateRequestFence,
		func(ctx workflow.Context, r FenceRequest) error {
			if k.drainHints(ctx) {
				k.wakeUp()
			}
			k.requestFence(workflow.Now(ctx), r)
			k.wakeUp()
			return nil
		}, workflow.UpdateHandlerOptions{Validator: func(r FenceRequest) error {
			switch t := r.Target; {
			case t.RunID == "" || !(LeaseRef{WorkflowID: t.WorkflowID, RunID: t.RunID}).named():
				return activities.Invalid("target.workflowID", t.WorkflowID,
					"a release is asked for by a job: its workflow ID (fence/NODE) and run ID are required")
			case t.Node == "":
				return activities.Invalid("target.node", "", "the node that is to be fenced is required")
			case t.Why != fencing.WhyUnhealthy && t.Why != fencing.WhyDeleting && t.Why != fencing.WhyRecovered &&
				t.Override == nil:
				// Recovered releases nothing: it asks what has become of the release, see FenceDoubt.
				return activities.Invalid("target.why", string(t.Why), "must be Unhealthy, Deleting or Recovered")
			}
			return nil
		}})
}

// hearFences takes in what jobs have said about their cases.
func (k *keeper) hearFences(ctx workflow.Context) (reason bool) {
	c := workflow.GetSignalChannel(ctx, SignalEndFence)
	for r := (FenceRef{}); c.ReceiveAsync(&r); r = (FenceRef{}) {
		k.endFence(r)
		reason = true
	}
	return reason
}

// notifyFences tells every job what has changed about its case. One that cannot be told has ended.
func (k *keeper) notifyFences(ctx workflow.Context) {
	notices := k.tellFences(workflow.Now(ctx))
	sent := make([]workflow.Future, len(notices))
	for i, n := range notices {
		sent[i] = workflow.SignalExternalWorkflow(ctx, n.workflowID, "", SignalFence, n.notice)
	}
	for i, n := range notices {
		if err := sent[i].Get(ctx, nil); err != nil && ctx.Err() == nil {
			k.endFence(FenceRef{WorkflowID: n.workflowID, RunID: n.notice.RunID, Drop: true})
			k.wakeUp()
		}
	}
}

// letMachinesGo takes away all holds of ours. aside: because another policy is in charge; if none is any more they
// stay, and the keeper has to look again.
func (k *keeper) letMachinesGo(ctx workflow.Context, aside bool) error {
	if k.state.Memory.Fencing == nil {
		return nil
	}
	r, err := call(marking(ctx, "take the holds of all Machines away"), keeping.ReleaseHolds,
		activities.ReleaseHoldsInput{ClusterKey: k.cluster, Aside: aside, ID: k.observed.Seen.ID})
	// An attempt of which nothing was heard may have taken them away before the policy was in charge again.
	k.bare = nil
	if k.again = r.Moved; err != nil || r.Moved {
		return err
	}
	for _, c := range k.state.Memory.Fencing.Cases {
		c.Stage, c.Reason, c.Message = fencing.StageOver, fencing.ReasonNotHeld, "the policy holds no Machines any more"
		k.state.FencesOver = append(k.state.FencesOver, c)
	}
	k.state.Memory.Fencing = nil
	k.notifyFences(ctx)
	return nil
}
