package history

import (
	"fmt"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	historypb "go.temporal.io/api/history/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// keeperMemory is what the keeper knew when it decided: the last look, and what it had heard since the one before.
type keeperMemory struct {
	seen    activities.Observation
	watched activities.Watched
	heard   []string
	said    string // the budget, as last told
	report  activities.Report
}

func (r *reader) startedKeeper(e *historypb.HistoryEvent, a *startedAttributes) {
	in := read[workflows.KeeperInput](a.GetInput())
	if in.State != nil {
		r.keeper.watched, r.keeper.report = in.State.Watched, in.State.Reported
		return // it goes on; that was said
	}
	r.say(e, "the keeper of "+in.Cluster.String()+" begins", by(a.GetIdentity()))
}

func (r *reader) endedKeeper(e *historypb.HistoryEvent, _ *commonpb.Payloads) {
	r.say(e, "ended: the policy is deleted, and all that was done for it is undone")
}

func (r *reader) signalledKeeper(e *historypb.HistoryEvent, name string, input *commonpb.Payloads) {
	switch name {
	case workflows.SignalStorageChanged:
		if h := read[workflows.Hint](input); h.Reason != "" && !h.Own && !h.IsEcho() {
			r.keeper.heard = append(r.keeper.heard, h.Reason)
		}
	case workflows.SignalFinishLease:
		ref := read[workflows.LeaseRef](input)
		what := ref.WorkflowID + " says that its work is done"
		if ref.NodeGone {
			what += ", and that the node is gone"
		}
		r.say(e, what, wants(ref))
	case workflows.SignalReleaseLease:
		r.say(e, read[workflows.LeaseRef](input).WorkflowID+" gives its claim back")
	default:
		r.say(e, fmt.Sprintf("heard the signal %q, which means nothing", name))
	}
}

// asked tells of a job's claim.
func (r *reader) asked(e *historypb.HistoryEvent, args *commonpb.Payloads) {
	c := read[workflows.LeaseRequest](args).Claim
	if c.WorkflowID != "" {
		r.say(e, fmt.Sprintf("%s asks for the lease of %s", c.WorkflowID, c.Domain), prefixed("why: ", c.Reason),
			"priority: "+c.Priority.String())
	}
}

// decided tells of a budget that is about to be written: the moment in which a decision begins to count. Its summary is
// the decision in the keeper's own words; the facts are what it had seen and heard.
func (r *reader) decided(e *historypb.HistoryEvent, in activities.BudgetInput) {
	says := summary(e)
	if says == "" || says == r.keeper.said {
		return
	}
	r.keeper.said = says
	mode, says := "closed", withoutMode(says)
	switch {
	case len(in.Daemons.Except) > 0:
		mode = "only " + strings.Join(in.Daemons.Except, ", ") + " is open"
	case in.Daemons.MinAvailable == 0:
		mode = "at rest"
	case in.Daemons.MinAvailable != budget.Everything:
		mode = fmt.Sprintf("at rest, %d must stay", in.Daemons.MinAvailable)
	}
	r.say(e, "the budget: "+mode+": "+strings.TrimPrefix(says, "closed "),
		append([]string{prefixed("heard: ", strings.Join(r.keeper.heard, "; "))}, r.facts()...)...)
	r.keeper.heard = nil
}

// withoutMode takes the mode from the beginning of a summary, which is said in other words.
func withoutMode(says string) string {
	for _, mode := range []budget.Mode{budget.ModeDefault, budget.ModeOpen, budget.ModeClosed} {
		says = strings.TrimPrefix(says, string(mode)+": ")
	}
	return says
}

// facts are what the keeper saw.
func (r *reader) facts() (out []string) {
	k := &r.keeper
	v := k.seen.Seen.View
	switch {
	case v.Unavailable != "":
		return append(out, "the storage cluster: "+v.Unavailable)
	case v.Daemons == 0:
		return out
	}
	if k.seen.Seen.Kind == storage.Longhorn {
		out = append(out, fmt.Sprintf("%d of %d instance managers run", v.Up, v.Daemons))
	} else {
		out = append(out, fmt.Sprintf("OSDs %d/%d up as of epoch %d", v.Up, v.Daemons, v.ChangeEpoch),
			health(k.watched.Health, v))
	}
	for _, d := range v.Domains {
		var down []string
		for _, x := range d.Down() {
			down = append(down, x.String())
		}
		if len(down) > 0 {
			out = append(out, fmt.Sprintf("%s %s: %s", v.FailureDomainType, d.Name, strings.Join(down, ", ")))
		}
	}
	for _, m := range v.Mons {
		if !m.Standing() {
			out = append(out, m.String())
		}
	}
	for _, n := range v.Nodes {
		switch {
		case n.Gone:
			out = append(out, n.Name+" is deleted")
		case n.Cordoned:
			out = append(out, n.Name+" is cordoned")
		case n.Tainted != "":
			out = append(out, n.Name+" is tainted "+n.Tainted)
		}
	}
	return append(append(out, v.Problems...), v.Intolerant...)
}

func health(h storage.Health, v storage.View) string {
	switch {
	case h.PGs == 0 && h.Reason == "":
		return "PGs: not known yet"
	case h.ChangeEpoch < v.ChangeEpoch || h.Placement != v.Placement:
		return fmt.Sprintf("PGs: %d/%d clean, but that was before the last change", h.PGsClean, h.PGs)
	case !h.Fresh:
		return fmt.Sprintf("PGs: %d/%d clean by the last report, not proven to be fresh: %s", h.PGsClean, h.PGs, h.Reason)
	case h.Clean:
		return fmt.Sprintf("PGs: %d/%d clean, proven", h.PGsClean, h.PGs)
	default:
		return "PGs: " + h.Reason
	}
}

// holds tells whether this very grant is held. A job may hold one after the other.
func holds(l lease.State, c lease.Claim) bool {
	now, held, _ := l.Find(c.WorkflowID, c.RunID)
	return held && now.Token == c.Token
}

// reported tells of what a report has that no step of its own shows: who got the lease and who lost it, conflicts.
func (r *reader) reported(e *historypb.HistoryEvent, now activities.Report) {
	before := r.keeper.report
	r.keeper.report = now
	for _, c := range before.Memory.Lease.Holders {
		if !holds(now.Memory.Lease, c) {
			r.say(e, fmt.Sprintf("the lease of %s is no longer with %s", c.Domain, c.WorkflowID), r.facts()...)
		}
	}
	for _, c := range now.Memory.Lease.Holders {
		if !holds(before.Memory.Lease, c) {
			r.say(e, fmt.Sprintf("granted the lease of %s to %s, with token %d", c.Domain, c.WorkflowID, c.Token),
				prefixed("why: ", c.Reason))
		}
	}
	if now.Conflict != before.Conflict && now.Conflict != "" {
		r.say(e, "the budgets cannot protect: "+now.Conflict)
	}
	if now.Decision.Reason == budget.ReasonSecondPolicy && before.Decision.Reason != budget.ReasonSecondPolicy {
		r.say(e, "manages nothing: "+now.Decision.Message)
	}
}

func (r *reader) completedKeeper(e *historypb.HistoryEvent, a activity, result *commonpb.Payloads) {
	switch a.name {
	case "ObserveStorage":
		r.keeper.seen = read[activities.Observation](result)
	case "WatchStorage":
		r.keeper.watched = read[activities.Watched](result)
	case "CarryOut":
		r.carriedOut(e, a, read[activities.CarryResult](result))
	case "SwitchNoout":
		r.switched(e, read[activities.FlagInput](a.input), a.tries())
	case "GuardPods":
		r.wrote(e, read[activities.BudgetResult](result))
	case "ReleasePods":
		if read[activities.PodsReleased](result).Moved {
			r.say(e, "left the budgets, which the policy wants by now", a.tries())
		} else {
			r.say(e, "removed our budgets", a.tries())
		}
	case "GuardPolicy":
		if in := read[activities.GuardInput](a.input); !in.On {
			r.say(e, "let the policy go")
		}
	case "AwaitJobsEnd":
		ended := read[activities.JobsEnded](result)
		for _, job := range ended.Ended {
			r.say(e, fmt.Sprintf("%s has ended: %s", job.WorkflowID, ended.How[job.WorkflowID]))
		}
	case "Recall":
		m := read[activities.Memory](result)
		if n := len(m.Lease.Holders) + len(m.Lease.Queue); n > 0 || len(m.Flags) > 0 {
			r.say(e, fmt.Sprintf("remembers %d claims and %d noout flags of the keeper before", n, len(m.Flags)))
		}
	}
}

// carriedOut tells what became of the steps of a decision.
func (r *reader) carriedOut(e *historypb.HistoryEvent, a activity, done activities.CarryResult) {
	in := read[activities.CarryInput](a.input)
	if done.Set.Done() && in.Set != nil {
		r.switched(e, *in.Set, a.tries())
	}
	if done.Unset.Done() && in.Unset != nil {
		r.switched(e, *in.Unset, a.tries())
	}
	r.undone(e, "write the status", done.Remembered.Failed)
	r.undone(e, "set noout", done.Set.Failed)
	r.undone(e, "unset noout", done.Unset.Failed)
	r.undone(e, "write the budget", done.Budgets.Failed)
	r.undone(e, "have data moved away from nodes that are to be removed", done.Relocated.Failed)
	r.wrote(e, done.Budgets.Result)
	if done.Relocated.Done() && in.Relocate != nil {
		r.relocated(e, *in.Relocate, done.Relocated.Result)
	}
	if done.Reported.Done() && in.Report != nil {
		r.reported(e, *in.Report)
	}
	if done.Looked.Done() {
		r.keeper.seen = done.Looked.Result
	}
}

// relocated tells of data that the storage is to move away from nodes that are to be removed.
func (r *reader) relocated(e *historypb.HistoryEvent, in activities.RelocateInput, done activities.RelocateResult) {
	var away []string
	for _, n := range in.Nodes {
		if n.Away {
			away = append(away, n.Node)
		}
	}
	switch {
	case done.Refused != "":
		r.say(e, "did not have data moved away from "+strings.Join(away, ", "), prefixed("because: ", done.Refused))
	case len(away) > 0:
		r.say(e, "has data moved away from "+strings.Join(away, ", ")+", which is to be removed")
	case done.Changed:
		r.say(e, "has no data moved away any more")
	}
}

// undone tells of a step that failed, since that is no error of the activity.
func (r *reader) undone(e *historypb.HistoryEvent, step, why string) {
	if why != "" {
		r.say(e, "could not "+step+": "+why)
	}
}

func (r *reader) switched(e *historypb.HistoryEvent, in activities.FlagInput, tries string) {
	what := "unset noout on "
	if in.On {
		what = "set noout on "
	}
	r.say(e, what+strings.Join(in.Hosts, ", "), tries)
}

func (r *reader) wrote(e *historypb.HistoryEvent, budgets activities.BudgetResult) {
	if budgets.Conflict != "" {
		r.say(e, "the budget was not written: "+budgets.Conflict)
	}
}
