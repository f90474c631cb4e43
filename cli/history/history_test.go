package history_test

import (
	"compress/gzip"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/client"

	"github.com/lockkeeper/lockkeeper/cli/history"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

const recorded = "../../workflows/testdata"

// recording reads one of the histories that were recorded in the lab.
func recording(t testing.TB, file string) history.Run {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	h, err := client.HistoryFromJSON(z, client.HistoryJSONOptions{})
	require.NoError(t, err)
	return history.Run{
		WorkflowID: h.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetWorkflowId(),
		Events:     h.GetEvents(),
	}
}

var update = flag.Bool("update", false, "write the golden files anew")

func words(entries []history.Entry) string {
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%s  %s  %s\n", e.At.Format("15:04:05.000"), e.Workflow, e.What)
		for _, f := range e.Facts {
			fmt.Fprintf(&b, "        %s\n", f)
		}
	}
	return b.String()
}

// TestRecorded: what is told of the histories that were recorded in the lab. A change of the words is seen here; when
// the histories are recorded anew, so are these (-update).
func TestRecorded(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(recorded, "*.json.gz"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json.gz") + ".txt"
		t.Run(name, func(t *testing.T) {
			got := words(history.Read(recording(t, file)))
			golden := filepath.Join("testdata", name)
			if *update {
				require.NoError(t, os.MkdirAll("testdata", 0o755))
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), got)
			assert.NotContains(t, got, "which means nothing")
		})
	}
}

// TestStory: whatever was recorded, a drain's history tells the story in its order, and the keeper's tells the same
// from its side.
func TestStory(t *testing.T) {
	job := recording(t, filepath.Join(recorded, "v0.2-drain-node-a.json.gz"))
	keeper := recording(t, filepath.Join(recorded, "v0.2-keeper-rook-ceph-rook-ceph.json.gz"))
	assert.Equal(t, []storage.ClusterKey{{Namespace: "rook-ceph", Name: "rook-ceph"}}, history.Clusters(job))
	told := words(history.Merge(history.Read(job), history.Read(keeper)))
	at := 0
	for _, next := range []string{
		"drain/node-a  the drain of node-a was asked for", "drain/node-a  node-a is in zone zone-x of rook-ceph/rook-ceph",
		"drain/node-a asks for the lease of zone zone-x", "granted the lease of zone zone-x to drain/node-a, with token 1",
		"set noout on node-a", "the budget: only zone-x is open: drain/node-a holds the lease",
		"drain/node-a  has the lease, with token 1",
		"drain/node-a  cordoned node-a", "begins to evict the pods of node-a", "evicted the pods of node-a",
		"somebody paused it", "somebody resumed it",
		"uncordoned node-a", "told keeper/rook-ceph/rook-ceph that its work is done",
		"the budget: closed: for a last look before it comes to rest", "unset noout on node-a",
		"the lease of zone zone-x is no longer with drain/node-a", "ended: Done",
	} {
		i := strings.Index(told[at:], next)
		require.GreaterOrEqual(t, i, 0, "%q is missing after\n%s", next, told[:at])
		at += i
	}
	assert.False(t, job.Ended().IsZero())
	assert.True(t, keeper.Ended().IsZero(), "it was recorded while it ran")
}

// TestEveryEventMayBeMissing: a record that is cut off, or of another version, is told as far as it goes.
func TestEveryEventMayBeMissing(t *testing.T) {
	for _, file := range []string{"v0.2-drain-node-a.json.gz", "v0.2-keeper-rook-ceph-rook-ceph.json.gz"} {
		run := recording(t, filepath.Join(recorded, file))
		for i := range min(len(run.Events), 200) {
			part := history.Run{
				WorkflowID: run.WorkflowID,
				Events: append(append([]*historypb.HistoryEvent{}, run.Events[:i]...),
					run.Events[i+1:min(len(run.Events), 300)]...),
			}
			history.Read(part)
			history.Clusters(part)
		}
	}
	assert.Empty(t, history.Read(history.Run{Events: []*historypb.HistoryEvent{{}, nil}}))
}

// FuzzPayloads: whatever a payload says, its history can be told.
func FuzzPayloads(f *testing.F) {
	for _, s := range []string{
		`{"node":"a"}`, `{"found":true,"counts":{"total":3},"next":{"why":"x"}}`, `{"halted":{}}`,
		`{"report":{"memory":{"lease":{"holders":[{}]}}}}`, `{"seen":{"view":{"daemons":3,"domains":[{"troubled":[{}]}]}}}`,
		"null", "", `"x"`, "{",
	} {
		f.Add([]byte(s), "ObserveStorage")
		f.Add([]byte(s), "ResolveNode")
		f.Add([]byte(s), "lease")
		for _, name := range []string{"SurveyOSDs", "ReplaceBatch", "AwaitOSDs", "ReportOSDs", "RehearseBatch", "skip"} {
			f.Add([]byte(s), name)
		}
	}
	run := recording(f, filepath.Join(recorded, "v0.2-keeper-rook-ceph-rook-ceph.json.gz"))
	events := run.Events[:min(60, len(run.Events))]
	f.Fuzz(func(_ *testing.T, data []byte, name string) {
		p := &commonpb.Payloads{Payloads: []*commonpb.Payload{{Data: data}}}
		at := func(id int64, e *historypb.HistoryEvent) *historypb.HistoryEvent { e.EventId = id; return e }
		odd := []*historypb.HistoryEvent{
			at(1, &historypb.HistoryEvent{
				EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
				Attributes: &historypb.HistoryEvent_ActivityTaskScheduledEventAttributes{
					ActivityTaskScheduledEventAttributes: &historypb.ActivityTaskScheduledEventAttributes{
						ActivityType: &commonpb.ActivityType{Name: name}, Input: p,
					},
				},
			}),
			at(2, &historypb.HistoryEvent{
				EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
				Attributes: &historypb.HistoryEvent_ActivityTaskCompletedEventAttributes{
					ActivityTaskCompletedEventAttributes: &historypb.ActivityTaskCompletedEventAttributes{
						ScheduledEventId: 1,
						Result:           p,
					},
				},
			}),
			at(3, ranHere(`{"ActivityType":"`+name+`"}`, p)),
			at(3, &historypb.HistoryEvent{
				EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
				Attributes: &historypb.HistoryEvent_WorkflowExecutionSignaledEventAttributes{
					WorkflowExecutionSignaledEventAttributes: &historypb.WorkflowExecutionSignaledEventAttributes{
						SignalName: name,
						Input:      p,
					},
				},
			}),
		}
		history.Read(history.Run{WorkflowID: "x", Events: append(odd, events...)})
	})
}

// ranHere is the marker of an activity that ran within a workflow task.
func ranHere(data string, result *commonpb.Payloads) *historypb.HistoryEvent {
	return &historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_MARKER_RECORDED,
		Attributes: &historypb.HistoryEvent_MarkerRecordedEventAttributes{
			MarkerRecordedEventAttributes: &historypb.MarkerRecordedEventAttributes{
				MarkerName: "LocalActivity",
				Details:    map[string]*commonpb.Payloads{"data": payload(data), "result": result},
			},
		},
	}
}

func payload(data string) *commonpb.Payloads {
	return &commonpb.Payloads{Payloads: []*commonpb.Payload{{Data: []byte(data)}}}
}

// TestLooksWithinTheTask: a keeper that looks within its workflow task tells what it saw from the markers.
func TestLooksWithinTheTask(t *testing.T) {
	closes := &historypb.HistoryEvent{
		EventId: 2, EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
		UserMetadata: &sdkpb.UserMetadata{Summary: payload(`"closed: osd.1 is down"`).Payloads[0]},
		Attributes: &historypb.HistoryEvent_ActivityTaskScheduledEventAttributes{
			ActivityTaskScheduledEventAttributes: &historypb.ActivityTaskScheduledEventAttributes{
				ActivityType: &commonpb.ActivityType{Name: "GuardPods"}, Input: payload(`{}`),
			},
		},
	}
	closes.UserMetadata.Summary.Metadata = map[string][]byte{"encoding": []byte("json/plain")}
	out := history.Read(history.Run{WorkflowID: "keeper/a/b", Events: []*historypb.HistoryEvent{
		ranHere(`{"ActivityType":"ObserveStorage"}`, payload(`{"seen":{"view":{"daemons":3,"up":2,"problems":["X"]}}}`)),
		closes,
	}})
	require.Len(t, out, 1)
	assert.Contains(t, out[0].Facts, "OSDs 2/3 up as of epoch 0")
	assert.Contains(t, out[0].Facts, "X")
	failed := ranHere(`{"ActivityType":"ObserveStorage","Attempt":4}`, nil)
	failed.GetMarkerRecordedEventAttributes().Failure = &failurepb.Failure{Message: "no API server"}
	out = history.Read(history.Run{WorkflowID: "keeper/a/b", Events: []*historypb.HistoryEvent{failed}})
	require.Len(t, out, 1)
	assert.Equal(t, "ObserveStorage failed: no API server", out[0].What)
}
