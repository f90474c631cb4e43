package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/test/bench/spans"
)

// act is one activity of a job that carried out an act of a step, by the clock of Temporal's server.
type act struct {
	do  monplan.Do
	mon string
	of  monplan.Work // the step
	// after is when the act before it had ended, or the job began.
	after time.Time
	spans.Span
}

// move is one mon's way from one place to another: from the end of the move before it, or the beginning of the job, to
// the end of its last act.
type move struct {
	newcomer, old string
	spans.Span
	acts []act
}

// movesOf puts the acts of each move together.
func movesOf(acts []act) (moves []move) {
	for _, a := range acts {
		at := slices.IndexFunc(moves, func(m move) bool { return m.newcomer == a.of.Newcomer && m.old == a.of.Old })
		if at < 0 {
			at = len(moves)
			moves = append(moves, move{newcomer: a.of.Newcomer, old: a.of.Old, Span: spans.Span{From: a.after}})
		}
		moves[at].acts, moves[at].To = append(moves[at].acts, a), a.To
	}
	return moves
}

// readHistories reads the acts in all runs of a job that began since, oldest first.
func readHistories(ctx context.Context, c client.Client, id string, since time.Time) (acts []act, n int, err error) {
	runs, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("WorkflowId = '%s' AND StartTime >= '%s'", id, since.UTC().Format(time.RFC3339Nano)),
	})
	if err != nil {
		return nil, 0, err
	}
	for _, run := range slices.Backward(runs.GetExecutions()) {
		history := c.GetWorkflowHistory(ctx, id, run.GetExecution().GetRunId(), false,
			enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		var events []*historypb.HistoryEvent
		for history.HasNext() {
			e, err := history.Next()
			if err != nil {
				return nil, 0, err
			}
			events = append(events, e)
		}
		more, err := actsOf(events)
		if err != nil {
			return nil, 0, err
		}
		acts = append(acts, more...)
		if len(more) > 0 { // a run that the changed spec alone began has moved nothing
			n += len(events)
		}
	}
	return acts, n, nil
}

// actsOf reads the acts of one run.
func actsOf(events []*historypb.HistoryEvent) (acts []act, err error) {
	payloads, open := converter.GetDefaultDataConverter(), map[int64]act{}
	var after time.Time
	for _, e := range events {
		at := e.GetEventTime().AsTime()
		if after.IsZero() {
			after = at
		}
		switch e.GetEventType() { //nolint:exhaustive // of some fifty only these matter
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
			scheduled := e.GetActivityTaskScheduledEventAttributes()
			if scheduled.GetActivityType().GetName() != "CarryOutMon" {
				continue
			}
			var in activities.MonStepInput
			if err := payloads.FromPayloads(scheduled.GetInput(), &in); err != nil {
				return nil, fmt.Errorf("the input of CarryOutMon: %w", err)
			}
			first := in.Seen.Step.Acts[0]
			a := act{do: first.Do, mon: first.Mon, of: *in.Seen.Step.Work, after: after, Span: spans.Span{From: at}}
			open[e.GetEventId()] = a
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
			a, known := open[e.GetActivityTaskCompletedEventAttributes().GetScheduledEventId()]
			if known {
				a.To, after = at, at
				acts = append(acts, a)
			}
		}
	}
	return acts, nil
}

// seen is what was seen from outside of the pods of mons and of their quorum, by our clock.
type seen struct {
	pods map[string]*podTimes // by mon
	// joined is when Ceph named a mon in quorum for the first time.
	joined map[string]time.Time
	// answered is when one of several clients, which ask all the time for something that takes a commit, got an answer.
	answered []time.Time
	// longestWait is the longest that one of them waited: one that was connected to a mon that leaves looks for another.
	longestWait time.Duration
}

// podTimes is how far a mon's first pod was, and when: there, its init container under way and at its end, ceph-mon
// started.
type podTimes struct{ made, mkfs, whole, started time.Time }

// usual is the most between two answers while there is a quorum.
const usual = 100*time.Millisecond + askEvery

// withoutQuorum are the times in which no client got an answer.
func (s *seen) withoutQuorum() (out []spans.Span) {
	slices.SortFunc(s.answered, time.Time.Compare)
	for i := 1; i < len(s.answered); i++ {
		if gap := (spans.Span{From: s.answered[i-1], To: s.answered[i]}); gap.To.Sub(gap.From) > usual {
			out = append(out, gap)
		}
	}
	return out
}

func (s *seen) longestWithoutQuorum() (longest time.Duration) {
	for _, gap := range s.withoutQuorum() {
		longest = max(longest, gap.To.Sub(gap.From))
	}
	return longest
}

// split is where the time of a move went.
type split struct {
	move
	total, schedule, mkfs, quorum time.Duration
	own                           []spans.Span // what is left
}

func (p split) ours() time.Duration { return spans.Length(p.own) }

// split takes out of a move what Ceph and Kubernetes take for themselves. What overlaps counts once.
func (s *seen) split(m move) split {
	p := split{move: m, total: m.To.Sub(m.From), own: []spans.Span{m.Span}}
	take := func(others ...spans.Span) time.Duration {
		others = slices.DeleteFunc(others, func(o spans.Span) bool { return o.From.IsZero() || !o.To.After(o.From) })
		before := spans.Length(p.own)
		p.own = spans.Without(p.own, others)
		return before - spans.Length(p.own)
	}
	pod := s.pods[m.newcomer]
	if pod == nil {
		pod = &podTimes{}
	}
	var schedule []spans.Span
	for _, a := range m.acts {
		switch a.do { //nolint:exhaustive // the others are not Kubernetes'
		case monplan.Schedule, monplan.ClaimVolume:
			schedule = append(schedule, a.Span)
		case monplan.Start:
			schedule = append(schedule, spans.Span{From: a.To, To: pod.made})
		}
	}
	p.mkfs = take(spans.Span{From: pod.mkfs, To: pod.whole})
	p.quorum = take(append(s.withoutQuorum(), spans.Span{From: pod.started, To: s.joined[m.newcomer]})...)
	p.schedule = take(append(schedule, spans.Span{From: pod.made, To: pod.mkfs},
		spans.Span{From: pod.whole, To: pod.started})...)
	return p
}

func (p split) String() string {
	ms := func(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
	var acts []string
	for _, a := range p.acts {
		own := ms(spans.Length(p.own) - spans.Length(spans.Without(p.own, []spans.Span{{From: a.after, To: a.To}})))
		acts = append(acts, fmt.Sprintf("%s %s after %s, own %s", a.do, ms(a.To.Sub(a.From)), ms(a.From.Sub(a.after)), own))
	}
	return fmt.Sprintf("mon.%s for mon.%s: %s = schedule and start %s + mkfs %s + quorum %s + ours %s\n  %s", p.newcomer,
		p.old, ms(p.total), ms(p.schedule), ms(p.mkfs), ms(p.quorum), ms(p.ours()), strings.Join(acts, "\n  "))
}
