package main

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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
	"github.com/lockkeeper/lockkeeper/test/bench/spans"
)

func at(second int64) time.Time { return time.Unix(second, 0).UTC() }

type span struct{ first, last int64 }

func from(first, last int64) spans.Span { return spans.Span{From: at(first), To: at(last)} }

// history is one of a job, of activities that take from one second to another.
func history(t *testing.T, began int64, acts ...act) []*historypb.HistoryEvent {
	t.Helper()
	events := []*historypb.HistoryEvent{{EventId: 1, EventTime: timestamppb.New(at(began))}}
	for _, a := range acts {
		in := activities.MonStepInput{}
		in.Seen.Step = monplan.Step{Work: &a.of, Acts: []monplan.Act{{Do: a.do, Mon: a.mon}}}
		payload, err := converter.GetDefaultDataConverter().ToPayloads(in)
		require.NoError(t, err)
		id := int64(len(events) + 1)
		events = append(events,
			&historypb.HistoryEvent{
				EventId: id, EventTime: timestamppb.New(a.From), EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
				Attributes: &historypb.HistoryEvent_ActivityTaskScheduledEventAttributes{
					ActivityTaskScheduledEventAttributes: &historypb.ActivityTaskScheduledEventAttributes{
						ActivityType: &commonpb.ActivityType{Name: "CarryOutMon"}, Input: payload,
					},
				},
			},
			&historypb.HistoryEvent{
				EventId: id + 1, EventTime: timestamppb.New(a.To), EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
				Attributes: &historypb.HistoryEvent_ActivityTaskCompletedEventAttributes{
					ActivityTaskCompletedEventAttributes: &historypb.ActivityTaskCompletedEventAttributes{
						ScheduledEventId: id,
					},
				},
			})
	}
	return events
}

// TestMoves: a move lasts from the end of the one before it, and only what is neither Kubernetes' nor Ceph's is ours.
func TestMoves(t *testing.T) {
	d := monplan.Work{Kind: monplan.Migrate, Newcomer: "d", Old: "a"}
	e := monplan.Work{Kind: monplan.Migrate, Newcomer: "e", Old: "b"}
	acts, err := actsOf(history(t, 100,
		act{do: monplan.Schedule, mon: "d", of: d, Span: from(101, 104)},
		act{do: monplan.Start, mon: "d", of: d, Span: from(105, 106)},
		act{do: monplan.AwaitQuorum, mon: "d", of: d, Span: from(106, 118)},
		act{do: monplan.RemoveMon, mon: "a", of: d, Span: from(118, 125)},
		act{do: monplan.Schedule, mon: "e", of: e, Span: from(126, 129)},
	))
	require.NoError(t, err)
	moves := movesOf(acts)
	require.Len(t, moves, 2)
	assert.Equal(t, from(100, 125), moves[0].Span)
	assert.Equal(t, from(125, 129), moves[1].Span)

	s := seen{
		pods:   map[string]*podTimes{"d": {made: at(107), mkfs: at(109), whole: at(110), started: at(111)}},
		joined: map[string]time.Time{"d": at(116)},
	}
	for _, answered := range []span{{90, 113}, {117, 120}, {123, 140}} { // not in their order
		for at := time.Unix(answered.last, 0); at.After(time.Unix(answered.first, 0)); at = at.Add(-askEvery) {
			s.answered = append(s.answered, at)
		}
		s.answered = append(s.answered, time.Unix(answered.first, 0))
	}
	p := s.split(moves[0])
	assert.Equal(t, 25*time.Second, p.total)
	assert.Equal(t, 1*time.Second, p.mkfs, "109 to 110")
	assert.Equal(t, 9*time.Second, p.quorum, "111 to 117, since the wait for a commit overlaps, and 120 to 123")
	assert.Equal(t, 7*time.Second, p.schedule, "101 to 104, 106 to 109, 110 to 111")
	assert.Equal(t, 8*time.Second, p.ours())
	assert.Equal(t, 4*time.Second, s.longestWithoutQuorum())

	p = s.split(moves[1]) // whose pod nobody has seen
	assert.Equal(t, []time.Duration{0, 0, 3 * time.Second, time.Second},
		[]time.Duration{p.mkfs, p.quorum, p.schedule, p.ours()})
}

// TestTakePod: a pod's times are those at which it was seen for the first time.
func TestTakePod(t *testing.T) {
	s := seen{pods: map[string]*podTimes{}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{kube.MonLabel: "d"}}}
	s.takePod(pod, at(1))
	running, terminated := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: running}}
	s.takePod(pod, at(2))
	s.takePod(pod, at(3))
	pod.Status.InitContainerStatuses[0].State = terminated
	s.takePod(pod, at(4))
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: running}}
	s.takePod(pod, at(5))
	s.takePod(pod, at(6))
	assert.Equal(t, podTimes{made: at(1), mkfs: at(2), whole: at(4), started: at(5)}, *s.pods["d"])
}
