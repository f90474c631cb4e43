package history

import (
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	historypb "go.temporal.io/api/history/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file knows what the record of a fence means, and what a keeper's says of fencing.

func (r *reader) startedFence(e *historypb.HistoryEvent, a *startedAttributes) {
	in := read[workflows.FenceNodeInput](a.GetInput())
	facts := []string{prefixed("why: ", in.Reason), prefixed("policy: ", in.Policy), by(a.GetIdentity())}
	if in.Release != nil {
		facts = append(facts, fmt.Sprintf("%s releases it by hand: %s", in.Release.By, in.Release.Reason))
	}
	r.say(e, in.Node+" is to be fenced", facts...)
}

func (r *reader) endedFence(e *historypb.HistoryEvent, result *commonpb.Payloads) {
	f := read[workflows.FenceNodeResult](result)
	r.say(e, "ended: "+f.Outcome, prefixed("released: ", f.Released), prefixed("passed over: ", f.Against),
		"after "+f.Took.Round(time.Millisecond).String())
}

// completedFence tells of the activities of fences, and whether this was one.
func (r *reader) completedFence(e *historypb.HistoryEvent, a activity, result *commonpb.Payloads) bool {
	switch a.name {
	case "ExamineNode":
		p := read[activities.Examination](result).Patient
		why, since := p.Why()
		what := fmt.Sprintf("%s: %s", read[activities.ExamineInput](a.input).Node, why)
		if !since.IsZero() {
			what += " since " + since.UTC().Format(time.RFC3339)
		}
		r.say(e, what, prefixed("condition: ", p.Condition), prefixed("Machine: ", p.Machine.Name), a.tries())
	case "RequestFence":
		in := read[activities.FenceInput](a.input)
		what := fmt.Sprintf("asked the keeper of %s to release the Machine of %s (%s)", in.Cluster, in.Target.Node,
			in.Target.Why)
		if in.Healing {
			what = fmt.Sprintf("asked the keeper of %s whether the data is whole", in.Cluster)
		}
		var facts []string
		if o := in.Target.Override; o != nil {
			facts = append(facts, fmt.Sprintf("%s says so: %s", o.By, o.Reason))
		}
		r.say(e, what, append(facts, a.tries())...)
	default:
		return false
	}
	return true
}

// signalledFence tells of the signals of fences, and whether this was one.
func (r *reader) signalledFence(
	e *historypb.HistoryEvent, name string, input *commonpb.Payloads, identity string,
) bool {
	switch name {
	case workflows.SignalFenceChanged:
		r.say(e, "heard that something has changed", prefixed("what: ", read[string](input)), by(identity))
	case workflows.SignalFenceRelease:
		in := read[workflows.FenceRelease](input)
		r.say(e, in.By+" releases the Machine by hand", prefixed("why: ", in.Reason), by(identity))
	case workflows.SignalFence:
		n := read[workflows.FenceNotice](input)
		r.say(e, fmt.Sprintf("%s by %s: %s", stages[n.Stage], n.Cluster, n.Reason), prefixed("because: ", n.Message),
			prefixed("passed over: ", n.Against))
	case workflows.SignalEndFence:
		ref := read[workflows.FenceRef](input)
		r.say(e, ref.WorkflowID+" needs no release any more")
	default:
		return false
	}
	return true
}

var stages = map[fencing.Stage]string{
	fencing.StageHeld: "the Machine is held", fencing.StageReleased: "the Machine is released",
	fencing.StageHealing: "the data is to be whole again", fencing.StageOver: "the data is whole",
}

// heldOrLetGo tells of what a keeper does to Machines.
func (r *reader) heldOrLetGo(e *historypb.HistoryEvent, in activities.CarryInput) {
	if in.Hold != nil && len(in.Hold.Set) > 0 {
		r.say(e, fmt.Sprintf("holds %d Machines, %s for one", len(in.Hold.Set), in.Hold.Set[0]))
	}
	for _, x := range []*activities.HoldsInput{in.Hold, in.LetGo} {
		if x != nil && len(x.Remove) > 0 {
			r.say(e, fmt.Sprintf("lets go of %d Machines, %s for one", len(x.Remove), x.Remove[0]))
		}
	}
}
