package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	historypb "go.temporal.io/api/history/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// This file knows what the record of a drain means, rollout.go that of a rollout, and keeper.go that of a keeper. A
// record says only once which of them it is of, at its beginning; their activities and signals have different names.

type startedAttributes = historypb.WorkflowExecutionStartedEventAttributes

// kind is what the first and the last event of a workflow of one type mean.
type kind struct {
	started func(*reader, *historypb.HistoryEvent, *startedAttributes)
	ended   func(*reader, *historypb.HistoryEvent, *commonpb.Payloads)
}

var kinds = map[string]kind{
	jobs.Keeper.Type:         {(*reader).startedKeeper, (*reader).endedKeeper},
	jobs.DrainNode.Type:      {(*reader).startedDrain, (*reader).endedDrain},
	jobs.FenceNode.Type:      {(*reader).startedFence, (*reader).endedFence},
	jobs.ScaleDownNode.Type:  {(*reader).startedScaleDown, (*reader).endedScaleDown},
	jobs.UpdateOSDs.Type:     {(*reader).startedUpdate, (*reader).endedRollout},
	jobs.RestartOSDs.Type:    {(*reader).startedRestart, (*reader).endedRollout},
	jobs.RestartWaiting.Type: {(*reader).startedWaiting, (*reader).endedRollout},
	jobs.MigrateMons.Type:    {(*reader).startedMigration, (*reader).endedMigration},
}

func (r *reader) started(e *historypb.HistoryEvent) {
	a := e.GetWorkflowExecutionStartedEventAttributes()
	if k, known := kinds[a.GetWorkflowType().GetName()]; known {
		r.kind = k
	}
	r.kind.started(r, e, a)
}

func (r *reader) startedDrain(e *historypb.HistoryEvent, a *startedAttributes) {
	in := read[workflows.DrainNodeInput](a.GetInput())
	what := "the drain of " + in.Node + " was asked for"
	switch {
	case in.Taint != "":
		what = "the taint " + in.Taint + " is to drive the pods of " + in.Node +
			" off, and this job lets them go in their turn"
	case in.Observe:
		what = "somebody drains " + in.Node + " from outside; this job guards it"
	}
	r.say(e, what, prefixed("why: ", in.Reason), prefixed("policy: ", in.Policy), by(a.GetIdentity()))
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// Clusters are the storage clusters that a job is about, as it found out; none if it has not.
func Clusters(run Run) (keys []storage.ClusterKey) {
	scheduled := map[int64]string{}
	add := func(key storage.ClusterKey) {
		if key.Name != "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	for _, e := range run.Events {
		if a := e.GetActivityTaskScheduledEventAttributes(); a != nil {
			scheduled[e.GetEventId()] = a.GetActivityType().GetName()
		}
		a := e.GetActivityTaskCompletedEventAttributes()
		switch scheduled[a.GetScheduledEventId()] {
		case "ResolveNode":
			for _, on := range read[activities.Target](a.GetResult()).Storage() {
				add(on.Cluster)
			}
		case "SurveyMons":
			add(read[activities.MonSurvey](a.GetResult()).Cluster)
		case "SurveyOSDs":
			add(read[activities.Survey](a.GetResult()).Cluster)
		}
	}
	return keys
}

// scheduled tells of what matters when it begins; everything else when its result is known.
func (r *reader) scheduled(e *historypb.HistoryEvent, a activity) {
	switch a.name {
	case "EvictPods":
		in := read[activities.EvictInput](a.input)
		under := []string{fmt.Sprintf("under token %d of the lease", in.Token)}
		if len(in.Others) > 0 {
			under[0] += " of " + in.Cluster.String()
		}
		for _, g := range in.Others {
			under = append(under, fmt.Sprintf("under token %d of the lease of %s", g.Token, g.Cluster))
		}
		r.say(e, "begins to evict the pods of "+in.Node, under...)
	case "RequestLease":
		if in := read[activities.LeaseInput](a.input); in.Claim.Reserved() {
			if r.claims == nil {
				r.claims = map[int64]string{}
			}
			r.claims[in.Claim.Ask] = ": " + in.Claim.Domain.String() + " of " + in.Cluster.String()
		}
	case "GuardPods":
		r.decided(e, read[activities.BudgetInput](a.input))
	case "ReportStatus":
		r.reported(e, read[activities.ReportInput](a.input).Report)
	case "CarryOut":
		in := read[activities.CarryInput](a.input)
		if in.Remember != nil {
			r.reported(e, *in.Remember)
		}
		if in.Budgets != nil {
			r.decided(e, *in.Budgets)
		}
		r.heldOrLetGo(e, in)
	default:
		r.scheduledRollout(e, a)
	}
}

func (r *reader) completed(e *historypb.HistoryEvent, a activity, result *commonpb.Payloads) {
	switch a.name {
	case "ResolveNode":
		t := read[activities.Target](result)
		facts := []string{
			"its storage: " + strings.Join(t.Daemons, ", "), prefixed("in CRUSH: ", strings.Join(t.Hosts, ", ")),
			a.tries(),
		}
		if t.Cordoned {
			facts = append(facts, "it was cordoned already, so it stays so afterwards")
		}
		if t.Gone {
			facts = append(facts, "its Node object is deleted")
		}
		where := fmt.Sprintf("%s is in %s of %s", t.Node, t.Domain, t.Cluster)
		for _, on := range t.Others {
			where += fmt.Sprintf(", and in %s of %s", on.Domain, on.Cluster)
			facts = append(facts, fmt.Sprintf("of %s: %s", on.Cluster, strings.Join(on.Daemons, ", "))+
				prefixed(", in CRUSH: ", strings.Join(on.Hosts, ", ")))
		}
		r.say(e, where, facts...)
	case "RequestLease":
		in := read[activities.LeaseInput](a.input)
		switch c := in.Claim; {
		case c.Ready:
			r.say(e, fmt.Sprintf("said that it has all leases, and needs that of %s of %s to take effect", c.Domain, in.Cluster),
				a.tries())
		case c.Reserved():
			r.say(e, fmt.Sprintf("asked for the lease of %s of %s, to be held in reserve", c.Domain, in.Cluster), a.tries())
		default:
			r.say(e, fmt.Sprintf("asked for the lease of %s", c.Domain), a.tries())
		}
	case "Cordon":
		r.cordoned(e, a)
	case "DetachByHand":
		r.detached(e, a, read[activities.Detached](result))
	case "EvictPods":
		p := read[activities.EvictionProgress](result)
		what := fmt.Sprintf("evicted the pods of %s: %d", read[activities.EvictInput](a.input).Node, p.Total-p.Remaining)
		r.say(e, what, prefixed("stopped: ", p.Ended), a.tries())
	case "AwaitNode":
		in, n := read[activities.AwaitNodeInput](a.input), read[activities.NodeReturn](result)
		var how []string
		for word, is := range map[string]bool{
			"deleted": n.Gone, "rebooted": n.Rebooted,
			"uncordoned and Ready": n.Uncordoned,
		} {
			if is {
				how = append(how, word)
			}
		}
		if len(how) == 2 && how[0] > how[1] {
			how[0], how[1] = how[1], how[0]
		}
		r.say(e, in.Node+" is "+strings.Join(how, ", "), a.tries())
	case "AwaitSigns":
		r.saw(e, read[activities.AwaitSignsInput](a.input).Node, read[leaving.Sight](result), a.tries())
	default:
		if r.completedFence(e, a, result) {
			return
		}
		r.completedMigration(e, a, result)
		r.completedRollout(e, a, result)
		r.completedKeeper(e, a, result)
	}
}

func (r *reader) cordoned(e *historypb.HistoryEvent, a activity) {
	in := read[activities.CordonInput](a.input)
	what := "uncordoned "
	if in.On {
		what = "cordoned "
	}
	r.say(e, what+in.Node, a.tries())
}

func (r *reader) detached(e *historypb.HistoryEvent, a activity, d activities.Detached) {
	in := read[activities.DetachInput](a.input)
	what := "found nothing in " + in.Cluster.String() + " that was attached to " + in.Node + " by hand"
	switch {
	case len(d.Names) > 0:
		what = fmt.Sprintf("detached %s from %s, which was attached by hand", strings.Join(d.Names, ", "), in.Node)
	case d.Refused != "":
		what = "detached nothing of " + in.Cluster.String() + " from " + in.Node
	}
	r.say(e, what, prefixed("because: ", d.Refused), a.tries())
}

func (r *reader) failed(e *historypb.HistoryEvent, a activity, why string) {
	r.say(e, a.name+" failed: "+why, a.tries())
}

// persons are the signals that people send.
var persons = map[string]string{
	jobs.SignalPause: "somebody paused it", jobs.SignalResume: "somebody resumed it",
	jobs.SignalAbort: "somebody aborted it", jobs.SignalApprove: "somebody said that the canary is fine",
	jobs.SignalDone: "somebody said that the work on the node is done",
}

func (r *reader) signalled(e *historypb.HistoryEvent, name string, input *commonpb.Payloads, identity string) {
	switch what := persons[name]; {
	case r.signalledFence(e, name, input, identity):
	case what != "":
		r.say(e, what, by(identity))
	case name == jobs.SignalSkip:
		r.say(e, "somebody said to leave "+read[string](input)+" as it is", by(identity))
	case name == workflows.SignalOSDsChanged:
		r.say(e, "heard that something has changed", prefixed("what: ", read[string](input)), by(identity))
	case name == workflows.SignalMonsChanged:
		r.say(e, "heard that something has changed", prefixed("what: ", read[string](input)), by(identity))
	case name == workflows.SignalNodeLeaving:
		r.say(e, "heard that the node leaves", prefixed("how: ", read[string](input)), by(identity))
	case name == workflows.SignalMigrate:
		r.say(e, "somebody asked to migrate mons", by(identity))
	case name == workflows.SignalLease:
		n := read[workflows.LeaseNotice](input)
		r.say(e, notice(n)+r.claims[n.Ask], prefixed("because: ", n.WaitsFor))
	default:
		r.signalledKeeper(e, name, input)
	}
}

func notice(n workflows.LeaseNotice) string {
	switch n.State {
	case workflows.LeaseWaiting:
		return "waits for the lease"
	case workflows.LeaseGranted:
		return fmt.Sprintf("has the lease, with token %d", n.Token)
	case workflows.LeaseReserved:
		return "holds the lease in reserve"
	case workflows.LeaseHealing:
		return "waits for the storage to be whole"
	case workflows.LeaseReleased:
		return "the storage is whole; the lease is given back"
	case workflows.LeaseParked:
		return "noout has ended and the data is whole without the node, so the lease is given back"
	case workflows.LeaseRevoked:
		return "the lease is taken away"
	default:
		return "heard something about the lease that it does not understand: " + string(n.State)
	}
}

// wants says what a job wants next.
func wants(ref workflows.LeaseRef) string {
	if ref.Next == nil {
		return ""
	}
	return fmt.Sprintf("next it wants the lease of %s: %s", ref.Next.Domain, ref.Next.Reason)
}

// signals tells whom this workflow told what.
func (r *reader) signals(e *historypb.HistoryEvent, to, name string, input *commonpb.Payloads) {
	switch name {
	case workflows.SignalFinishLease:
		r.say(e, "told "+to+" that its work is done", wants(read[workflows.LeaseRef](input)))
	case workflows.SignalReleaseLease:
		r.say(e, "gave the lease back to "+to+" at once")
	case workflows.SignalLease:
		n := read[workflows.LeaseNotice](input)
		r.say(e, fmt.Sprintf("told %s: %s", to, n.State), prefixed("because: ", n.WaitsFor))
	}
}

func (r *reader) endedDrain(e *historypb.HistoryEvent, result *commonpb.Payloads) {
	d := read[workflows.DrainNodeResult](result)
	r.say(e, "ended: "+d.Outcome, fmt.Sprintf("%d pods evicted, after %s, of which %s waiting for the lease", d.Evicted,
		d.Took.Round(time.Millisecond), d.Waited.Round(time.Millisecond)))
}
