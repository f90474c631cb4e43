package workflows

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// reportLater writes the status while the keeper goes on. Only people wait for it, and the next look may be urgent.
func (k *keeper) reportLater(ctx workflow.Context) {
	k.unreported = true
	if k.reporting {
		return
	}
	k.reporting = true
	workflow.Go(ctx, func(ctx workflow.Context) {
		defer func() { k.reporting = false }()
		for k.unreported && ctx.Err() == nil {
			k.unreported = false
			err := k.write(ctx)
			if k.unwritten = ""; err != nil {
				k.unreported, k.unwritten = true, message(err)
				_ = workflow.Sleep(ctx, retryAfter)
			}
		}
	})
}

// report writes the status before the keeper goes on: it is the memory that outlives this workflow, and what must not
// be forgotten is written down before it is done. One that is being written comes first, or the older would win.
func (k *keeper) report(ctx workflow.Context) error {
	if err := workflow.Await(ctx, func() bool { return !k.reporting }); err != nil {
		return err
	}
	return k.write(ctx)
}

// write writes the policy's status and events, if they say anything new.
func (k *keeper) write(ctx workflow.Context) error {
	r := activities.Report{
		Generation: k.observed.Generation, Memory: k.state.Memory, Decision: k.said(), Since: k.state.Since,
		View: k.observed.Seen.View, Health: k.health(), Clean: k.clean, Conflict: k.state.Conflict,
		Keeper: KeeperID(k.cluster), MayDrain: MayDrain(k.said()), Unmanaged: !k.observed.Settings.ManagePodBudgets,
	}
	// When a View was taken says nothing about what it saw.
	r.View.At, r.AsOf = k.state.Reported.View.At, k.state.Reported.AsOf
	if len(k.news) == 0 && reflect.DeepEqual(r, k.state.Reported) {
		if k.renewal(ctx) > 0 {
			return nil
		}
		if confirmed, err := k.confirm(ctx); confirmed || err != nil {
			return err
		}
	}
	r.AsOf = workflow.Now(ctx)
	written, news := r, k.news
	k.news = nil
	r.Events = append(k.events(ctx, r), news...)
	r.View.Departed = nil // of no interest to anybody who reads a status
	if _, err := call(quick(ctx, "status and events"), keeping.ReportStatus,
		activities.ReportInput{Cluster: k.cluster, Report: r}); err != nil {
		k.news = append(news, k.news...)
		return err
	}
	k.state.Reported = written
	workflow.SetCurrentDetails(ctx, k.details())
	return nil
}

// events tells those who look at the policy or at a node with kubectl what opened, closed, or waits.
func (k *keeper) events(ctx workflow.Context, r activities.Report) []activities.Event {
	var out []activities.Event
	now := workflow.Now(ctx)
	d, before := r.Decision, k.state.Reported.Decision
	if d.Mode != before.Mode || d.Open != before.Open || d.Reason != before.Reason {
		e := activities.Event{Reason: eventReason(d), Message: d.Message, Warning: d.Mode == budget.ModeClosed, At: now}
		if d.Mode == budget.ModeOpen {
			e.Message = fmt.Sprintf("%s is open, all others are closed: %s", d.Open, d.Message)
		}
		out = append(out, e)
		for _, node := range k.concerned(d) {
			e.Node = node
			out = append(out, e)
		}
	}
	if r.Conflict != "" && r.Conflict != k.state.Reported.Conflict {
		out = append(out, activities.Event{Reason: "BudgetConflict", Message: r.Conflict, Warning: true, At: now})
	}
	if m, before := r.View.Marks, k.state.Reported.View.Marks; m != nil && len(m.Foreign) > 0 &&
		(before == nil || !slices.Equal(m.Foreign, before.Foreign)) {
		out = append(out, activities.Event{
			Reason: "ForeignMark", Warning: true, At: now,
			Message: "the mark of another pod is on " + strings.Join(m.Foreign, ", ") +
				": it was copied, or is in the pod template of their workload; take the label lockkeeper.io/proved out there",
		})
	}
	for _, c := range r.Memory.Lease.Queue {
		if old, _, ok := k.state.Reported.Memory.Lease.Find(c.WorkflowID, c.RunID); c.Node != "" && c.WaitsFor != "" &&
			(!ok || old.WaitsFor == "") {
			out = append(out, activities.Event{Node: c.Node, Reason: "LeaseWaiting", Message: c.WorkflowID + " waits: " +
				c.WaitsFor, At: now})
		}
	}
	for _, c := range r.Memory.Lease.Holders {
		old, held, _ := k.state.Reported.Memory.Lease.Find(c.WorkflowID, c.RunID)
		if c.Node != "" && !c.Reserved() && (!held || old.Reserved()) {
			out = append(out, activities.Event{
				Node: c.Node, Reason: "LeaseGranted",
				Message: fmt.Sprintf("%s may disrupt %s", c.WorkflowID, c.Domain), At: now,
			})
		}
	}
	return out[:min(len(out), mostEventsAtOnce)] // the status names them all
}

// mostEventsAtOnce bounds the events that go with one report.
const mostEventsAtOnce = 32

func eventReason(d budget.Decision) string {
	if d.Reason == budget.ReasonSecondPolicy || d.Reason == budget.ReasonDeleting {
		return d.Reason
	}
	switch d.Mode {
	case budget.ModeOpen:
		return "DisruptionOpened"
	case budget.ModeDefault:
		return "DisruptionAtRest"
	default:
		return "DisruptionClosed"
	}
}

// concerned lists the nodes that a change of the open domain is news for: those in it that somebody is disrupting.
func (k *keeper) concerned(d budget.Decision) []string {
	if d.Mode != budget.ModeOpen {
		return nil
	}
	const most = 16 // each of them gets an event
	var out []string
	for _, n := range k.observed.Seen.View.Nodes {
		if n.In(d.Open.Name) && (n.Leaving() || len(n.Down) > 0) && !n.Gone && len(out) < most {
			out = append(out, n.Name)
		}
	}
	return out
}

// details is what Temporal's UI shows of a running keeper.
func (k *keeper) details() string {
	s := fmt.Sprintf("**%s**", MayDrain(k.said()))
	s += fmt.Sprintf("  \n%s: %s", k.said().Reason, k.said().Message)
	for _, h := range k.state.Memory.Lease.Holders {
		s += fmt.Sprintf("  \nlease: %s (%s) since %s", h.WorkflowID, h.Domain, h.Granted.Format("15:04:05"))
	}
	const most = 20 // the policy's status has them all
	queue := k.state.Memory.Lease.Queue
	for _, q := range queue[:min(most, len(queue))] {
		s += fmt.Sprintf("  \nwaiting: %s (%s): %s", q.WorkflowID, q.Domain, q.WaitsFor)
	}
	if more := len(queue) - most; more > 0 {
		s += fmt.Sprintf("  \nand %d more", more)
	}
	return s
}

// MayDrain answers in a few words where a disruption is allowed.
func MayDrain(d budget.Decision) string {
	switch {
	case d.Mode == budget.ModeDefault:
		return "any node"
	case d.Mode == budget.ModeOpen && d.Open != storage.FailureDomain{}:
		return strings.Join(append([]string{d.Open.String()}, d.With...), ", ")
	default:
		return "no"
	}
}
