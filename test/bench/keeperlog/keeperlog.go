// Package keeperlog reads from a keeper's histories what it asked of the storage cluster, and when it was answered.
package keeperlog

import (
	"context"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/lockkeeper/lockkeeper/activities"
)

// Question is one for signs of life.
type Question struct {
	Asked, Ended time.Time
	// Answered: every OSD that was asked about gave one. Else the question was withdrawn, or somebody was silent.
	Answered bool
}

// Log is what was asked and answered, by the clock of Temporal's server.
type Log struct {
	Questions []Question
	// Proved are the times at which it was known that all data was clean as of the last change.
	Proved []time.Time
}

// Read reads the histories of all runs of a keeper that have not ended before since. A question that is still open is
// left out.
func Read(ctx context.Context, c client.Client, keeper string, since time.Time) (Log, error) {
	var out Log
	for token := []byte(nil); ; {
		page, err := c.ListWorkflow(ctx,
			&workflowservice.ListWorkflowExecutionsRequest{
				Query:         fmt.Sprintf("WorkflowId = '%s'", keeper),
				NextPageToken: token,
			})
		if err != nil {
			return Log{}, err
		}
		for _, run := range page.GetExecutions() {
			if ended := run.GetCloseTime(); ended != nil && ended.AsTime().Before(since) {
				continue
			}
			if err := out.read(ctx, c, keeper, run.GetExecution().GetRunId(), since); err != nil {
				return Log{}, err
			}
		}
		if token = page.GetNextPageToken(); len(token) == 0 {
			return out, nil
		}
	}
}

func (l *Log) read(ctx context.Context, c client.Client, workflow, run string, since time.Time) error {
	history := c.GetWorkflowHistory(ctx, workflow, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	var events []*historypb.HistoryEvent
	for history.HasNext() {
		e, err := history.Next()
		if err != nil {
			return err
		}
		events = append(events, e)
	}
	return l.take(events, since)
}

// take takes the events of one run.
func (l *Log) take(events []*historypb.HistoryEvent, since time.Time) error {
	asked := map[int64]time.Time{} // of the questions that are open
	watches := map[int64]bool{}
	for _, e := range events {
		at := e.GetEventTime().AsTime()
		switch e.GetEventType() { //nolint:exhaustive // of some fifty only these matter
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
			switch e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName() {
			case "AskLife":
				asked[e.GetEventId()] = at
			case "WatchStorage":
				watches[e.GetEventId()] = true
			}
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
			done := e.GetActivityTaskCompletedEventAttributes()
			if err := l.completed(done, asked[done.GetScheduledEventId()], watches[done.GetScheduledEventId()], at,
				since); err != nil {
				return err
			}
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED:
			// The keeper goes on without the answer.
			l.ended(asked[e.GetActivityTaskCancelRequestedEventAttributes().GetScheduledEventId()], at, false, since)
			delete(asked, e.GetActivityTaskCancelRequestedEventAttributes().GetScheduledEventId())
		}
	}
	return nil
}

func (l *Log) completed(
	done *historypb.ActivityTaskCompletedEventAttributes, asked time.Time, watch bool, at, since time.Time,
) error {
	payloads := converter.GetDefaultDataConverter()
	switch {
	case !asked.IsZero():
		var a activities.LifeAnswer
		if err := payloads.FromPayloads(done.GetResult(), &a); err != nil {
			return fmt.Errorf("the answer of AskLife: %w", err)
		}
		l.ended(asked, at, a.Silent == 0 && a.Unproven == "", since)
	case watch:
		var w activities.Watched
		if err := payloads.FromPayloads(done.GetResult(), &w); err != nil {
			return fmt.Errorf("the answer of WatchStorage: %w", err)
		}
		if w.Health.Fresh && w.Health.Clean && w.Unavailable == "" && !at.Before(since) {
			l.Proved = append(l.Proved, at)
		}
	}
	return nil
}

func (l *Log) ended(asked, at time.Time, answered bool, since time.Time) {
	if !asked.IsZero() && !at.Before(since) {
		l.Questions = append(l.Questions, Question{Asked: asked, Ended: at, Answered: answered})
	}
}
