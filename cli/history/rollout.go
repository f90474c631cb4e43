package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	historypb "go.temporal.io/api/history/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// rolloutMemory is what was told of a rollout already: it looks again and again, and most looks find what the last one
// did.
type rolloutMemory struct {
	found  string
	halted bool
}

func (r *reader) startedRestart(e *historypb.HistoryEvent, a *startedAttributes) {
	in := read[workflows.RestartOSDsInput](a.GetInput())
	if in.State != nil {
		r.goesOn(in.State)
		return
	}
	r.say(e, "the restart of the OSDs in "+in.Namespace+" was asked for", prefixed("why: ", in.Reason),
		prefixed("image: ", in.Image), prefixed("which: ", in.Selector), prefixed("update domain: ", in.UpdateDomain),
		by(a.GetIdentity()))
}

func (r *reader) startedWaiting(e *historypb.HistoryEvent, a *startedAttributes) {
	in := read[workflows.RestartWaitingInput](a.GetInput())
	if in.State != nil {
		r.goesOn(in.State)
		return
	}
	r.say(e, "somebody wants OSDs or mons of "+in.Policy+" restarted or gone, and they wait", prefixed("why: ", in.Reason),
		by(a.GetIdentity()))
}

func (r *reader) startedUpdate(e *historypb.HistoryEvent, a *startedAttributes) {
	in := read[workflows.UpdateOSDsInput](a.GetInput())
	if in.State != nil {
		r.goesOn(in.State)
		return
	}
	r.say(e, "the rollout of "+in.CephOSD+" begins", by(a.GetIdentity()))
}

func (r *reader) endedRollout(e *historypb.HistoryEvent, result *commonpb.Payloads) {
	u := read[workflows.UpdateOSDsResult](result)
	did := fmt.Sprintf("%d OSDs replaced in %d batches, after %s", u.Replaced, u.Batches, u.Took.Round(time.Millisecond))
	r.say(e, "ended: "+u.Outcome, did, prefixed("skipped: ", strings.Join(u.Skipped, ", ")))
}

// goesOn takes over what the run before has told already.
func (r *reader) goesOn(state *workflows.UpdateState) { r.rollout.halted = state.Halted != nil }

// scheduledRollout tells of what stops OSDs when it begins, and of a halt when it is reported.
func (r *reader) scheduledRollout(e *historypb.HistoryEvent, a activity) {
	switch a.name {
	case "ReplaceBatch":
		in := read[activities.Replacement](a.input)
		under := "without a lease: nobody can miss them"
		if in.Token != 0 {
			under = fmt.Sprintf("under token %d of the lease", in.Token)
		}
		r.say(e, "begins to replace "+named(in.OSDs), under, prefixed("template: ", in.Template))
	case "AwaitOSDs":
		r.say(e, "waits for "+strings.Join(few(read[activities.AwaitInput](a.input).Keys), ", ")+" to serve")
	case "ReportOSDs":
		switch in := read[activities.OSDSetReport](a.input); {
		case in.Halted != nil && !r.rollout.halted:
			r.say(e, "HALTED: "+in.Halted.Reason, "nothing further goes down")
			r.rollout.halted = true
		case in.Halted == nil && r.rollout.halted:
			r.say(e, "halts no longer")
			r.rollout.halted = false
		}
	}
}

func (r *reader) completedRollout(e *historypb.HistoryEvent, a activity, result *commonpb.Payloads) {
	switch a.name {
	case "SurveyOSDs":
		r.surveyed(e, a, read[activities.Survey](result))
	case "CreatePods":
		in := read[activities.KeysInput](a.input)
		r.say(e, "made the missing pods of "+strings.Join(few(in.Names), ", "), a.tries())
	case "DiscardPods":
		r.say(e, "deleted pods that were nobody's: "+strings.Join(few(read[activities.KeysInput](a.input).Names), ", "),
			a.tries())
	case "RemoveOSDs":
		r.say(e, "deleted the pods of OSDs that left the spec: "+strings.Join(few(read[activities.KeysInput](a.input).Names),
			", "), a.tries())
	case "RehearseBatch":
		if refused := read[activities.Rehearsed](result).Refused; refused != nil {
			r.say(e, "the new pods were refused before any OSD was touched: "+refused.Error())
		}
	case "ReplaceBatch":
		switch done := read[activities.Replaced](result); {
		case done.Refused != "":
			r.say(e, "replaced nothing: "+done.Refused, a.tries())
		default:
			r.say(e, "replaced "+named(done.OSDs), a.tries())
		}
	case "AwaitOSDs":
		if a.unwanted {
			return
		}
		what := arrived(read[activities.AwaitInput](a.input))
		if read[activities.Arrival](result).Moved {
			what = "no longer waits for them: the spec is another one, or a pod is missing"
		}
		r.say(e, what, a.tries())
	}
}

// arrived says that those who were waited for serve, or, of those that somebody wanted gone for good, that they are
// gone.
func arrived(in activities.AwaitInput) string {
	var serve, gone []string
	for _, key := range in.Keys {
		if slices.ContainsFunc(in.LetGo, func(g activities.LetGo) bool { return g.Key == key && g.ForGood }) {
			gone = append(gone, key)
			continue
		}
		serve = append(serve, key)
	}
	var parts []string
	switch len(serve) {
	case 0:
	case 1:
		parts = append(parts, serve[0]+" serves, in Kubernetes and in Ceph")
	default:
		parts = append(parts, strings.Join(few(serve), ", ")+" serve, in Kubernetes and in Ceph")
	}
	if len(gone) > 0 {
		parts = append(parts, strings.Join(few(gone), ", ")+" gone for good, as somebody wanted")
	}
	return strings.Join(parts, "; ")
}

// surveyed tells what a look found, if it is not what the last one found.
func (r *reader) surveyed(e *historypb.HistoryEvent, a activity, s activities.Survey) {
	var found string
	switch {
	case !s.Found:
		found = "there is no such CephOSD any more, or nobody wants what waits to be let go"
	case s.Deleting:
		found = "the CephOSD is being deleted"
	case len(s.Refused) > 0:
		found = "touches nothing, because the spec makes no sense: " + s.Refused[0].Error()
	case s.Unavailable != "":
		found = "cannot judge: the storage cluster: " + s.Unavailable
	default:
		found = "next: " + string(s.Next.Do) + ": " + s.Next.Why
	}
	if found == r.rollout.found {
		return
	}
	r.rollout.found = found
	facts := []string{a.tries()}
	if n := s.Counts; n.Total > 0 {
		done, of := n.Progress()
		facts = append(facts, fmt.Sprintf(
			"%d of %d OSDs up to date, %d out of date, %d ready, %d not ready, %d without a pod", done, of, n.OutOfDate, n.Ready,
			n.Unready, n.Missing))
	}
	for _, w := range s.Warned {
		facts = append(facts, w.Error())
	}
	for _, x := range s.Superfluous {
		facts = append(facts, x.Key+" left the spec and stays: "+x.Why)
	}
	r.say(e, found, facts...)
}

func named(osds []rollout.OSD) string {
	names := make([]string, len(osds))
	for i, o := range osds {
		names[i] = o.String()
	}
	return strings.Join(few(names), ", ")
}

// few keeps a line readable.
func few(names []string) []string {
	const most = 8
	if len(names) <= most {
		return names
	}
	return append(append([]string{}, names[:most]...), fmt.Sprintf("%d more", len(names)-most))
}
