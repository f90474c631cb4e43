// Package history tells from Temporal's record of a workflow what was decided, on which facts, and when. It asks
// nobody: the record alone has to be enough, since it is what is left when all else is over.
package history

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"

	"github.com/lockkeeper/lockkeeper/internal/jobs"
)

// Entry is one decision, or one thing that happened to a job.
type Entry struct {
	At       time.Time `json:"at"`
	Workflow string    `json:"workflow"`
	What     string    `json:"what"`
	// Facts are what it rests on, or what came of it.
	Facts []string `json:"facts,omitempty"`
}

// Run is one workflow run with all its events, in order.
type Run struct {
	WorkflowID string
	Events     []*historypb.HistoryEvent
}

// Started is when the run began; zero when there is no event.
func (r Run) Started() time.Time {
	if len(r.Events) == 0 {
		return time.Time{}
	}
	return r.Events[0].GetEventTime().AsTime()
}

// Ended is when the run ended; zero while it runs.
func (r Run) Ended() time.Time {
	if len(r.Events) == 0 || !ends[r.Events[len(r.Events)-1].GetEventType()] {
		return time.Time{}
	}
	return r.Events[len(r.Events)-1].GetEventTime().AsTime()
}

// ends are the events after which nothing happens any more.
var ends = map[enumspb.EventType]bool{
	enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED: true, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED: true,
	enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED: true, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED: true,
	enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT: true, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW: true,
}

// Read tells what a run's events mean. A record that it does not understand, of another version, say, it passes over:
// what the rest says is still true.
func Read(run Run) []Entry {
	r := &reader{run: run, kind: kinds[jobs.Keeper.Type], activities: map[int64]activity{}}
	for _, e := range run.Events {
		r.event(e)
	}
	return r.out
}

// Merge puts the entries of several runs in the order in which they happened.
func Merge(all ...[]Entry) []Entry {
	out := slices.Concat(all...)
	slices.SortStableFunc(out, func(a, b Entry) int { return a.At.Compare(b.At) })
	return out
}

// reader goes through one run's events.
type reader struct {
	run        Run
	kind       kind
	activities map[int64]activity // by the event that scheduled them
	keeper     keeperMemory
	rollout    rolloutMemory
	claims     map[int64]string // of several storage clusters, by Ask: ": zone x of a/a"
	out        []Entry
}

// activity is one that was scheduled and has not ended.
type activity struct {
	name    string
	input   *commonpb.Payloads
	attempt int32
	failure string // of the attempt before
	// unwanted: the workflow does not wait for it any more. What it does is done all the same; what it finds is not heard.
	unwanted bool
}

func (r *reader) say(e *historypb.HistoryEvent, what string, facts ...string) {
	r.out = append(r.out, Entry{
		At: e.GetEventTime().AsTime(), Workflow: r.run.WorkflowID, What: what,
		Facts: slices.DeleteFunc(facts, func(f string) bool { return f == "" }),
	})
}

func (r *reader) event(e *historypb.HistoryEvent) {
	switch e.GetEventType() {
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
		r.started(e)
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
		a := e.GetActivityTaskScheduledEventAttributes()
		r.activities[e.GetEventId()] = activity{name: a.GetActivityType().GetName(), input: a.GetInput()}
		r.scheduled(e, r.activities[e.GetEventId()])
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_STARTED:
		a := e.GetActivityTaskStartedEventAttributes()
		was := r.activities[a.GetScheduledEventId()]
		was.attempt, was.failure = a.GetAttempt(), Cause(a.GetLastFailure())
		r.activities[a.GetScheduledEventId()] = was
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED:
		id := e.GetActivityTaskCancelRequestedEventAttributes().GetScheduledEventId()
		was := r.activities[id]
		was.unwanted = true
		r.activities[id] = was
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
		a := e.GetActivityTaskCompletedEventAttributes()
		r.completed(e, r.take(a.GetScheduledEventId()), a.GetResult())
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED:
		a := e.GetActivityTaskFailedEventAttributes()
		r.failed(e, r.take(a.GetScheduledEventId()), Cause(a.GetFailure()))
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
		a := e.GetActivityTaskTimedOutEventAttributes()
		r.failed(e, r.take(a.GetScheduledEventId()), Cause(a.GetFailure()))
	case enumspb.EVENT_TYPE_MARKER_RECORDED:
		r.ranHere(e, e.GetMarkerRecordedEventAttributes())
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
		a := e.GetWorkflowExecutionSignaledEventAttributes()
		r.signalled(e, a.GetSignalName(), a.GetInput(), a.GetIdentity())
	case enumspb.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED:
		a := e.GetSignalExternalWorkflowExecutionInitiatedEventAttributes()
		r.signals(e, a.GetWorkflowExecution().GetWorkflowId(), a.GetSignalName(), a.GetInput())
	case enumspb.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED:
		a := e.GetSignalExternalWorkflowExecutionFailedEventAttributes()
		r.say(e, a.GetWorkflowExecution().GetWorkflowId()+" could not be told: it does not run")
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
		r.asked(e, e.GetWorkflowExecutionUpdateAcceptedEventAttributes().GetAcceptedRequest().GetInput().GetArgs())
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
		r.say(e, "somebody cancelled it", by(e.GetWorkflowExecutionCancelRequestedEventAttributes().GetIdentity()))
	case enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED:
		a := e.GetWorkflowTaskFailedEventAttributes()
		r.say(e, "a worker could not go on, and it is tried again", a.GetCause().String()+": "+Cause(a.GetFailure()))
	default:
		r.ended(e)
	}
}

// ranHere tells of an activity that ran within a workflow task. Its marker names it, and has its result and no input.
func (r *reader) ranHere(e *historypb.HistoryEvent, a *historypb.MarkerRecordedEventAttributes) {
	if a.GetMarkerName() != "LocalActivity" {
		return
	}
	ran := read[struct {
		ActivityType string
		Attempt      int32
	}](a.GetDetails()["data"])
	what := activity{name: ran.ActivityType, attempt: ran.Attempt}
	if a.GetFailure() != nil {
		r.failed(e, what, Cause(a.GetFailure()))
		return
	}
	r.completed(e, what, a.GetDetails()["result"])
}

func (r *reader) ended(e *historypb.HistoryEvent) {
	switch e.GetEventType() {
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
		r.kind.ended(r, e, e.GetWorkflowExecutionCompletedEventAttributes().GetResult())
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
		r.say(e, "failed: "+Cause(e.GetWorkflowExecutionFailedEventAttributes().GetFailure()))
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
		a := e.GetWorkflowExecutionTerminatedEventAttributes()
		r.say(e, "was terminated", a.GetReason(), by(a.GetIdentity()))
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED:
		r.say(e, "ended, cancelled")
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT:
		r.say(e, "ended: its time was over")
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
		r.say(e, "goes on in a new run, with all that it knows")
	default: // bookkeeping of Temporal's own
	}
}

func (r *reader) take(scheduled int64) activity {
	a := r.activities[scheduled]
	delete(r.activities, scheduled)
	return a
}

// tries tells that an activity needed more than one attempt, and why.
func (a activity) tries() string {
	if a.attempt <= 1 {
		return ""
	}
	return fmt.Sprintf("at attempt %d; before: %s", a.attempt, a.failure)
}

func by(identity string) string {
	if identity == "" {
		return ""
	}
	return "by " + identity
}

// read decodes the first of some payloads. One that cannot be decoded leaves the zero value, or what could be.
func read[T any](p *commonpb.Payloads) T {
	var out T
	if len(p.GetPayloads()) > 0 {
		_ = json.Unmarshal(p.GetPayloads()[0].GetData(), &out)
	}
	return out
}

// summary is what the workflow's author wrote about a step.
func summary(e *historypb.HistoryEvent) string {
	var out string
	if p := e.GetUserMetadata().GetSummary(); p != nil {
		_ = converter.GetDefaultDataConverter().FromPayload(p, &out)
	}
	return out
}

// Cause is the message of the failure that began it all, without the layers around it.
func Cause(f *failurepb.Failure) string {
	for f.GetApplicationFailureInfo() == nil && f.GetCause() != nil {
		f = f.GetCause()
	}
	return f.GetMessage()
}
