package keeperlog

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

func at(second int) time.Time { return time.Unix(int64(second), 0).UTC() }

// history is one that a test writes: each event a second after the one before.
type history struct {
	*testing.T
	events []*historypb.HistoryEvent
}

func (h *history) add(e *historypb.HistoryEvent) int64 {
	e.EventId = int64(len(h.events) + 1)
	e.EventTime = timestamppb.New(at(len(h.events) + 1))
	h.events = append(h.events, e)
	return e.EventId
}

func (h *history) begins(activity string) int64 {
	return h.add(&historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
		Attributes: &historypb.HistoryEvent_ActivityTaskScheduledEventAttributes{
			ActivityTaskScheduledEventAttributes: &historypb.ActivityTaskScheduledEventAttributes{
				ActivityType: &commonpb.ActivityType{Name: activity},
			},
		},
	})
}

func (h *history) ends(id int64, result any) {
	h.Helper()
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(result)
	require.NoError(h, err)
	h.add(&historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
		Attributes: &historypb.HistoryEvent_ActivityTaskCompletedEventAttributes{
			ActivityTaskCompletedEventAttributes: &historypb.ActivityTaskCompletedEventAttributes{
				ScheduledEventId: id,
				Result:           payloads,
			},
		},
	})
}

func (h *history) withdraws(id int64) {
	h.add(&historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED,
		Attributes: &historypb.HistoryEvent_ActivityTaskCancelRequestedEventAttributes{
			ActivityTaskCancelRequestedEventAttributes: &historypb.ActivityTaskCancelRequestedEventAttributes{
				ScheduledEventId: id,
			},
		},
	})
}

func TestTake(t *testing.T) {
	h := &history{T: t}
	h.ends(h.begins("AskLife"), activities.LifeAnswer{}) // 1 to 2
	h.ends(h.begins("WatchStorage"), activities.Watched{Health: storage.Health{Fresh: true, Clean: true}})
	watch := h.begins("WatchStorage")
	h.ends(h.begins("AskLife"), activities.LifeAnswer{Life: storage.Life{Silent: 1}}) // 6 to 7
	late := h.begins("AskLife")                                                       // 8
	h.withdraws(late)
	h.ends(late, activities.LifeAnswer{})
	h.ends(h.begins("AskLife"), activities.LifeAnswer{}) // 11 to 12
	h.ends(h.begins("ReportStatus"), nil)
	h.ends(watch, activities.Watched{Health: storage.Health{Fresh: true, Clean: true}})       // 15
	h.ends(h.begins("WatchStorage"), activities.Watched{Health: storage.Health{Fresh: true}}) // not clean
	h.ends(h.begins("WatchStorage"), activities.Watched{Health: storage.Health{Clean: true}}) // of old
	h.ends(h.begins("WatchStorage"),
		activities.Watched{Health: storage.Health{Fresh: true, Clean: true}, Unavailable: "no quorum"})
	h.begins("AskLife") // is open

	var log Log
	require.NoError(t, log.take(h.events, at(5)))
	assert.Equal(t, Log{
		Questions: []Question{
			{Asked: at(6), Ended: at(7)},
			{Asked: at(8), Ended: at(9)},
			{Asked: at(11), Ended: at(12), Answered: true},
		},
		Proved: []time.Time{at(15)},
	}, log)
}
