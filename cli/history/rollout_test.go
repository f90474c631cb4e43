package history_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/cli/history"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// tape records a workflow's events as Temporal would.
type tape struct {
	t   *testing.T
	run history.Run
}

func newTape(t *testing.T, id string) *tape { return &tape{t: t, run: history.Run{WorkflowID: id}} }

func (p *tape) add(e *historypb.HistoryEvent) int64 {
	e.EventId = int64(len(p.run.Events) + 1)
	e.EventTime = timestamppb.New(time.Date(2026, 3, 1, 3, 0, int(e.EventId), 0, time.UTC))
	p.run.Events = append(p.run.Events, e)
	return e.EventId
}

func (p *tape) payload(v any) *commonpb.Payloads {
	data, err := json.Marshal(v)
	require.NoError(p.t, err)
	return &commonpb.Payloads{Payloads: []*commonpb.Payload{{Data: data}}}
}

func (p *tape) start(workflowType string, in any) {
	p.add(&historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
			WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{
				WorkflowType: &commonpb.WorkflowType{Name: workflowType}, Input: p.payload(in), Identity: "the watcher",
			},
		},
	})
}

func (p *tape) activity(name string, in, out any) {
	scheduled := p.add(&historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
		Attributes: &historypb.HistoryEvent_ActivityTaskScheduledEventAttributes{
			ActivityTaskScheduledEventAttributes: &historypb.ActivityTaskScheduledEventAttributes{
				ActivityType: &commonpb.ActivityType{Name: name}, Input: p.payload(in),
			},
		},
	})
	p.add(&historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
		Attributes: &historypb.HistoryEvent_ActivityTaskCompletedEventAttributes{
			ActivityTaskCompletedEventAttributes: &historypb.ActivityTaskCompletedEventAttributes{
				ScheduledEventId: scheduled,
				Result:           p.payload(out),
			},
		},
	})
}

func (p *tape) signal(name string, in any) {
	p.add(&historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionSignaledEventAttributes{
			WorkflowExecutionSignaledEventAttributes: &historypb.WorkflowExecutionSignaledEventAttributes{
				SignalName: name,
				Input:      p.payload(in),
			},
		},
	})
}

func (p *tape) end(out any) {
	p.add(&historypb.HistoryEvent{
		EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionCompletedEventAttributes{
			WorkflowExecutionCompletedEventAttributes: &historypb.WorkflowExecutionCompletedEventAttributes{
				Result: p.payload(out),
			},
		},
	})
}

var (
	osdSet  = activities.OSDSetRef{Kind: activities.OSDSetCephOSD, Namespace: "ceph", Name: "osds"}
	cluster = storage.ClusterKey{Namespace: "ceph", Name: "policy"}
	batch   = []rollout.OSD{{Key: "node-a:/dev/sda", Name: "osd.0"}, {Key: "node-a:/dev/sdb", Name: "osd.1"}}
)

func survey(next rollout.Step, upToDate int) activities.Survey {
	return activities.Survey{
		Found: true, Cluster: cluster, Template: "new", Next: next,
		Counts: activities.OSDSetCounts{Counts: rollout.Counts{Total: 4, UpToDate: upToDate, OutOfDate: 4 - upToDate}},
	}
}

// TestRollout: a batch that does not come back, a person's word, and the rest.
func TestRollout(t *testing.T) {
	p := newTape(t, "update-osds/ceph/osds")
	replace := rollout.Step{Do: rollout.DoReplace, OSDs: batch, Why: "all of node-a that is out of date"}
	await := activities.AwaitInput{OSDSet: osdSet, Keys: []string{"node-a:/dev/sda", "node-a:/dev/sdb"}}
	p.start(jobs.UpdateOSDs.Type, workflows.UpdateOSDsInput{CephOSD: "ceph/osds"})
	p.signal(workflows.SignalOSDsChanged, "the spec changed")
	p.activity("SurveyOSDs", activities.SurveyInput{OSDSet: osdSet}, survey(replace, 0))
	p.activity("NotePods", osdSet, struct{}{})
	p.activity("SurveyOSDs", activities.SurveyInput{OSDSet: osdSet}, survey(replace, 0))
	p.activity("RehearseBatch", activities.Replacement{OSDSet: osdSet, OSDs: batch},
		activities.Rehearsed{Rehearsal: activities.Rehearsal{
			Refused: input.Wrong("spec.podTemplate.spec", "x", "is rejected"),
		}})
	p.activity("RehearseBatch", activities.Replacement{OSDSet: osdSet, OSDs: batch}, activities.Rehearsed{OSDs: batch})
	p.signal(workflows.SignalLease, workflows.LeaseNotice{State: workflows.LeaseGranted, Token: 7})
	p.activity("ReplaceBatch", activities.Replacement{OSDSet: osdSet, OSDs: batch, Token: 7, Template: "new"},
		activities.Replaced{OSDs: batch[:1]})
	halt := &activities.Halt{Reason: "osd.0 to serve took longer than its deadline"}
	p.activity("ReportOSDs", activities.OSDSetReport{OSDSet: osdSet, Halted: halt}, struct{}{})
	p.activity("ReportOSDs", activities.OSDSetReport{OSDSet: osdSet, Halted: halt, Message: "osd.0"}, struct{}{})
	p.signal(jobs.SignalSkip, "osd.0")
	p.activity("AwaitOSDs", await, activities.Arrival{Moved: true})
	p.activity("ReportOSDs", activities.OSDSetReport{OSDSet: osdSet}, struct{}{})
	p.signal(jobs.SignalApprove, nil)
	p.activity("CreatePods", activities.KeysInput{OSDSet: osdSet, Names: []string{"node-b:/dev/sda"}}, struct{}{})
	p.activity("ReplaceBatch", activities.Replacement{OSDSet: osdSet, OSDs: batch},
		activities.Replaced{Refused: "2 PGs would become inactive"})
	p.activity("AwaitOSDs", await, activities.Arrival{})
	p.activity("SurveyOSDs", activities.SurveyInput{OSDSet: osdSet},
		survey(rollout.Step{Do: rollout.DoNothing, Why: "every OSD is as its template says"}, 4))
	p.end(workflows.UpdateOSDsResult{
		Outcome: workflows.OutcomeDone, Replaced: 3, Batches: 2, Took: time.Minute,
		Skipped: []string{"osd.0"},
	})

	var told []string
	for _, e := range history.Read(p.run) {
		told = append(told, e.What)
	}
	assert.Equal(t, []string{
		"the rollout of ceph/osds begins",
		"heard that something has changed",
		"next: Replace: all of node-a that is out of date",
		`the new pods were refused before any OSD was touched: spec.podTemplate.spec: "x": is rejected`,
		"has the lease, with token 7",
		"begins to replace osd.0, osd.1",
		"replaced osd.0",
		"HALTED: osd.0 to serve took longer than its deadline",
		"somebody said to leave osd.0 as it is",
		"waits for node-a:/dev/sda, node-a:/dev/sdb to serve",
		"no longer waits for them: the spec is another one, or a pod is missing",
		"halts no longer",
		"somebody said that the canary is fine",
		"made the missing pods of node-b:/dev/sda",
		"begins to replace osd.0, osd.1",
		"replaced nothing: 2 PGs would become inactive",
		"waits for node-a:/dev/sda, node-a:/dev/sdb to serve",
		"node-a:/dev/sda, node-a:/dev/sdb serve, in Kubernetes and in Ceph",
		"next: Nothing: every OSD is as its template says",
		"ended: Done",
	}, told)
	facts := words(history.Read(p.run))
	for _, want := range []string{
		"what: the spec changed", "0 of 4 OSDs up to date, 4 out of date", "under token 7 of the lease", "template: new",
		"without a lease", "3 OSDs replaced in 2 batches, after 1m0s", "skipped: osd.0",
	} {
		assert.Contains(t, facts, want)
	}
	assert.Equal(t, []storage.ClusterKey{cluster}, history.Clusters(p.run))
}

// A run that goes on with what another one knew says neither that it begins nor that it halts.
func TestRolloutGoesOn(t *testing.T) {
	p := newTape(t, "restart-osds/rook-ceph")
	halt := &activities.Halt{Reason: "osd.0"}
	p.start(jobs.RestartOSDs.Type,
		workflows.RestartOSDsInput{Namespace: "rook-ceph", State: &workflows.UpdateState{Halted: halt}})
	p.activity("ReportOSDs", activities.OSDSetReport{Halted: halt}, struct{}{})
	p.activity("SurveyOSDs", activities.SurveyInput{}, activities.Survey{Found: true, Unavailable: "no quorum"})
	assert.Equal(t, "cannot judge: the storage cluster: no quorum", history.Read(p.run)[0].What)

	p = newTape(t, "restart-osds/rook-ceph")
	p.start(jobs.RestartOSDs.Type, workflows.RestartOSDsInput{
		Namespace: "rook-ceph", Reason: "new certificate",
		UpdateDomain: "Zone",
	})
	assert.Contains(t, words(history.Read(p.run)), "the restart of the OSDs in rook-ceph was asked for\n        why: new "+
		"certificate\n        update domain: Zone\n        by the watcher")
}

// A job whose type nobody knows would be told of as a keeper.
func TestEveryJobIsKnown(t *testing.T) {
	for _, j := range jobs.All {
		p := newTape(t, j.ID("a", "b"))
		p.start(j.Type, struct{}{})
		assert.NotContains(t, history.Read(p.run)[0].What, "keeper", j.Type)
	}
}
