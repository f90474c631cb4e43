package workflows

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what the keeper says: to people in the status and in events, and to whoever asks.

// kept says whether the status is true as of now: the keeper sees what it speaks of, and has written what it saw.
func (m *mind) kept() Kept {
	switch {
	case m.observed.Generation == 0:
		return Kept{Why: "the keeper has not looked yet"}
	case m.lookFailed:
		return Kept{Why: "the keeper cannot look: " + m.trouble}
	case m.unwritten != "":
		return Kept{Why: "the keeper cannot write the status: " + m.unwritten}
	default:
		return Kept{OK: true}
	}
}

// renewal is how long the status needs no confirmation yet.
func (m *mind) renewal(now time.Time) time.Duration {
	if m.lookFailed || m.state.Reported.AsOf.IsZero() { // nothing to confirm
		return renewEvery
	}
	return m.state.Reported.AsOf.Add(renewEvery).Sub(now)
}

// draft is what there is to say. It is as of the report before, since when a View was taken says nothing about what it
// saw.
func (m *mind) draft(before activities.Report) activities.Report {
	r := activities.Report{
		Generation: m.observed.Generation, Memory: m.state.Memory, Decision: m.said(), Since: m.since(),
		View: m.observed.Seen.View, Health: m.health(), Clean: m.verdict.Clean, Conflict: m.state.Conflict,
		Keeper: KeeperID(m.cluster), MayDrain: MayDrain(m.said()), Unmanaged: !m.observed.Settings.ManagePodBudgets,
	}
	r.Fencing = m.fencingReport()
	r.View.At, r.AsOf = before.View.At, before.AsOf
	return r
}

// since is since when that has been so which is said. Where nothing was decided yet, that is since the keeper began.
func (m *mind) since() time.Time {
	if m.state.Since.IsZero() {
		return m.began
	}
	return m.state.Since
}

// signed is a report as it is written after another: with the events that go with it.
func (m *mind) signed(
	now time.Time, r, before activities.Report, news []activities.Event,
) activities.Report {
	r.Events = append(m.events(now, r, before), news...)
	r.View.Departed = nil // of no interest to anybody who reads a status
	return r
}

// events tells those who look at the policy or at a node with kubectl what opened, closed, or waits.
func (m *mind) events(now time.Time, r, last activities.Report) []activities.Event {
	var out []activities.Event
	d, before := r.Decision, last.Decision
	if d.Mode != before.Mode || d.Open != before.Open || d.Reason != before.Reason {
		e := activities.Event{Reason: eventReason(d), Message: d.Message, Warning: d.Mode == budget.ModeClosed, At: now}
		if d.Mode == budget.ModeOpen {
			e.Message = fmt.Sprintf("%s is open, all others are closed: %s", d.Open, d.Message)
		}
		out = append(out, e)
		for _, node := range m.concerned(d) {
			e.Node = node
			out = append(out, e)
		}
	}
	if r.Conflict != "" && r.Conflict != last.Conflict {
		out = append(out, activities.Event{Reason: "BudgetConflict", Message: r.Conflict, Warning: true, At: now})
	}
	if m, before := r.View.Marks, last.View.Marks; m != nil && len(m.Foreign) > 0 &&
		(before == nil || !slices.Equal(m.Foreign, before.Foreign)) {
		out = append(out, activities.Event{
			Reason: "ForeignMark", Warning: true, At: now,
			Message: "the mark of another pod is on " + strings.Join(m.Foreign, ", ") +
				": it was copied, or is in the pod template of their workload; take the label lockkeeper.io/proved out there",
		})
	}
	for _, c := range r.Memory.Lease.Queue {
		if old, _, ok := last.Memory.Lease.Find(c.WorkflowID, c.RunID); c.Node != "" && c.WaitsFor != "" &&
			(!ok || old.WaitsFor == "") {
			out = append(out, activities.Event{Node: c.Node, Reason: "LeaseWaiting", Message: c.WorkflowID + " waits: " +
				c.WaitsFor, At: now})
		}
	}
	for _, c := range r.Memory.Lease.Holders {
		old, held, _ := last.Memory.Lease.Find(c.WorkflowID, c.RunID)
		if c.Node != "" && !c.Reserved() && (!held || old.Reserved()) {
			out = append(out, activities.Event{
				Node: c.Node, Reason: "LeaseGranted",
				Message: fmt.Sprintf("%s may disrupt %s", c.WorkflowID, c.Domain), At: now,
			})
		}
	}
	return out[:min(len(out), mostEventsAtOnce)] // the status names them all
}

// concerned lists the nodes that a change of the open domain is news for: those in it that somebody is disrupting.
func (m *mind) concerned(d budget.Decision) []string {
	if d.Mode != budget.ModeOpen {
		return nil
	}
	const most = 16 // each of them gets an event
	var out []string
	for _, n := range m.observed.Seen.View.Nodes {
		if n.In(d.Open.Name) && (n.Leaving() || len(n.Down) > 0) && !n.Gone && len(out) < most {
			out = append(out, n.Name)
		}
	}
	return out
}

// details is what Temporal's UI shows of a running keeper.
func (m *mind) details() string {
	s := fmt.Sprintf("**%s**", MayDrain(m.said()))
	s += fmt.Sprintf("  \n%s: %s", m.said().Reason, m.said().Message)
	for _, h := range m.state.Memory.Lease.Holders {
		s += fmt.Sprintf("  \nlease: %s (%s) since %s", h.WorkflowID, h.Domain, h.Granted.Format("15:04:05"))
	}
	const most = 20 // the policy's status has them all
	queue := m.state.Memory.Lease.Queue
	for _, q := range queue[:min(most, len(queue))] {
		s += fmt.Sprintf("  \nwaiting: %s (%s): %s", q.WorkflowID, q.Domain, q.WaitsFor)
	}
	if more := len(queue) - most; more > 0 {
		s += fmt.Sprintf("  \nand %d more", more)
	}
	return s
}

func (m *mind) status() KeeperStatus {
	view := m.observed.Seen.View
	view.Departed = nil // of no interest to anybody who asks
	return KeeperStatus{
		Cluster: m.cluster, Decision: m.said(), Since: m.since(), Lease: m.state.Memory.Lease,
		FlagStatus: m.flagStatus(), View: view, Kind: m.state.Kind, Own: m.observed.Seen.Own, Health: m.health(),
		Clean: m.verdict.Clean, Known: m.known(),
		Trouble: m.trouble, NextTimer: m.next, Conflict: m.state.Conflict, Unmoved: m.unmoved,
		ReportPeriod: m.state.ReportPeriod,
		LivedFor:     m.state.LivedFor, Fencing: m.state.Memory.Fencing, Machines: m.observed.Survey,
	}
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

// MayDrain answers in a few words where a disruption is allowed.
func MayDrain(d budget.Decision) string {
	switch {
	case d.Answer != "":
		return d.Answer
	case d.Mode == budget.ModeDefault:
		return "any node"
	case d.Mode == budget.ModeOpen && d.Open != storage.FailureDomain{}:
		return strings.Join(append([]string{d.Open.String()}, d.With...), ", ")
	default:
		return "no"
	}
}
