package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	tlog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
)

// This file makes activities fail, hang and die with their worker.

// faulty makes activities fail as the scene wants.
type faulty struct {
	interceptor.WorkerInterceptorBase
	scene *scene
}

func (f *faulty) InterceptActivity(
	_ context.Context, next interceptor.ActivityInboundInterceptor,
) interceptor.ActivityInboundInterceptor {
	a := &faultyActivity{scene: f.scene}
	a.Next = next
	return a
}

// lasting are the activities that may take days.
var lasting = map[string]bool{
	"WatchStorage": true, "AskLife": true, "AwaitJobsEnd": true, "EvictPods": true,
	"AwaitNode": true, "AwaitSigns": true, "ReplaceBatch": true, "AwaitOSDs": true, "CarryOutMon": true, "AwaitMons": true,
}

// thorough are those that heartbeat, and may take minutes.
var thorough = map[string]bool{
	"MarkPods": true, "UnmarkPods": true, "ReleasePods": true,
	"SurveyOSDs": true, "RehearseBatch": true, "CreatePods": true, "DiscardPods": true, "NotePods": true,
	"RemoveOSDs": true, "ConfirmOSDs": true, "SurveyMons": true,
}

// attemptTimeout is what the workflows give an attempt of the others. The test environment gives it to all attempts
// together, and retries none that takes longer, so it is told of none (patient), and faultyActivity sees to it.
const attemptTimeout = 10 * time.Second

func (f *faulty) InterceptWorkflow(
	_ workflow.Context, next interceptor.WorkflowInboundInterceptor,
) interceptor.WorkflowInboundInterceptor {
	p := &patientInbound{scene: f.scene}
	p.Next = next
	return p
}

type patientInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	scene *scene
}

func (p *patientInbound) Init(out interceptor.WorkflowOutboundInterceptor) error {
	o := &patient{scene: p.scene}
	o.Next = out
	return p.Next.Init(o)
}

type patient struct {
	interceptor.WorkflowOutboundInterceptorBase
	scene *scene
}

func (p *patient) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	o := workflow.GetActivityOptions(ctx)
	o.StartToCloseTimeout = forever
	// The test environment lets the heartbeat's time run on from one attempt to the next, and never tries again after a
	// silence, such as that of a worker which is away for minutes. faultyActivity sees to it.
	if thorough[name] || lasting[name] {
		o.HeartbeatTimeout = forever
	}
	if o.RetryPolicy != nil && o.RetryPolicy.MaximumAttempts == 0 {
		unlimited := *o.RetryPolicy // and not ten times, as the test environment has it
		unlimited.MaximumAttempts = 1_000_000
		o.RetryPolicy = &unlimited
	}
	if !o.WaitForCancellation || ctx.Err() != nil {
		return p.Next.ExecuteActivity(workflow.WithActivityOptions(ctx, o), name, args...)
	}
	// The test environment says that an activity is cancelled while it still runs. A server says so when it has ended.
	o.ActivityID = p.scene.activityID()
	apart, _ := workflow.NewDisconnectedContext(ctx)
	f := p.Next.ExecuteActivity(workflow.WithActivityOptions(apart, o), name, args...)
	workflow.Go(ctx, func(ctx workflow.Context) {
		cancelled := func(workflow.ReceiveChannel, bool) { p.scene.cancelActivity(o.ActivityID) }
		workflow.NewSelector(ctx).AddFuture(f, func(workflow.Future) {}).AddReceive(ctx.Done(), cancelled).Select(ctx)
	})
	return f
}

func (s *scene) activityID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.activities++
	return fmt.Sprintf("waited-for-%d", s.activities)
}

// cancelActivity has the attempt that is under way hear that it is to end, and none begin any more.
func (s *scene) cancelActivity(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancelled == nil {
		s.cancelled = map[string]bool{}
	}
	s.cancelled[id] = true
	if end := s.cancels[id]; end != nil {
		end()
	}
}

// cancellable is the context of an attempt, which ends when its activity is cancelled.
func (s *scene) cancellable(ctx context.Context, id string) (context.Context, func()) {
	ctx, end := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancels == nil {
		s.cancels = map[string]context.CancelFunc{}
	}
	if s.cancels[id] = end; s.cancelled[id] {
		end()
	}
	return ctx, func() {
		end()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.cancels, id)
	}
}

func (s *scene) isCancelled(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cancelled[id]
}

func (p *patient) ExecuteLocalActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	o := workflow.GetLocalActivityOptions(ctx)
	o.StartToCloseTimeout = forever
	return p.Next.ExecuteLocalActivity(workflow.WithLocalActivityOptions(ctx, o), name, args...)
}

type faultyActivity struct {
	interceptor.ActivityInboundInterceptorBase
	scene *scene
}

func (a *faultyActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	id := activity.GetInfo(ctx).ActivityID
	ctx, done := a.scene.cancellable(ctx, id)
	defer done()
	result, err := a.attempt(ctx, in)
	if err != nil && a.scene.isCancelled(id) {
		return nil, temporal.NewCanceledError()
	}
	return result, err
}

func (a *faultyActivity) attempt(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	s, info := a.scene, activity.GetInfo(ctx)
	if info.ActivityType.Name == "clock" {
		return a.Next.ExecuteActivity(ctx, in)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if s.isOver() {
		return nil, errOver
	}
	if err := s.stopFrozen(ctx); err != nil {
		return nil, err
	}
	if info.Attempt > 1 {
		// The test environment begins an attempt even if the workflow has given up meanwhile. A server does not.
		if activity.RecordHeartbeat(ctx); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	s.awaitHearing(ctx)
	s.mu.Lock()
	n := s.attempts
	s.attempts++
	onAttempt, what := s.onAttempt, s.fault
	s.mu.Unlock()
	s.brake(info)
	if onAttempt != nil {
		onAttempt(n, info)
	}
	failed := noFault
	if what != nil {
		failed = what(n, info)
	}
	if failed != noFault {
		s.Tell("attempt %d of %s of %s %s", info.Attempt, info.ActivityType.Name, info.WorkflowExecution.ID, failed)
	}
	if failed == notDone {
		return nil, activities.Unavailable("on purpose", errors.New("not done"))
	}
	name := info.ActivityType.Name
	if !lasting[name] && !thorough[name] {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
	}
	outer := ctx
	ctx, alive := s.onWorker(ctx, n)
	var result any
	err := ctx.Err()
	if err == nil { // or its time was over before there was a worker
		result, err = a.Next.ExecuteActivity(ctx, in)
	}
	if failed == twice && ctx.Err() == nil {
		result, err = a.Next.ExecuteActivity(ctx, in)
	}
	switch {
	case failed != hangs || lasting[name]:
	case thorough[name]: // no heartbeat comes any more
		s.untilDone(outer, heartbeatTimeout-time.Second, func() bool { return s.over })
		return nil, activities.Unavailable("on purpose", errors.New("no heartbeat"))
	default:
		s.untilDone(outer, forever, func() bool { return s.over })
	}
	silent := s.awaitHearing(outer)
	switch lives := alive(); {
	case s.isOver():
		return nil, errOver
	case silent > heartbeatTimeout:
		return nil, activities.Unavailable("on purpose", errors.New("no heartbeat"))
	case !lives:
		return nil, activities.Unavailable("on purpose", errors.New("the worker died"))
	case errors.Is(outer.Err(), context.DeadlineExceeded):
		return nil, activities.Unavailable("on purpose", errors.New("timed out"))
	}
	if failed == doneAlso {
		return nil, activities.Unavailable("on purpose", errors.New("done, but who knows"))
	}
	return result, err
}

// crashWorker kills the worker, with all attempts that are under way, or starts it again.
func (s *scene) crashWorker(down bool) {
	if (s.crashes%2 == 1) == down {
		return
	}
	s.Tell("the worker %s", map[bool]string{true: "is killed", false: "is started again"}[down])
	s.update(func() {
		s.crashes++
		for _, cancel := range s.dying {
			cancel()
		}
		s.dying = nil
	})
	if s.monSim != nil {
		s.monSim.AnotherWorker()
	}
	for _, x := range s.sights {
		x.Unguarded(map[bool]time.Duration{true: forever, false: 30 * time.Second}[down])
		if !down {
			x.Guarded(30 * time.Second)
		}
	}
}

// deafen has Temporal hear nothing for a while: no attempt begins, and how one has ended is not noted.
func (s *scene) deafen(d time.Duration) {
	s.Tell("Temporal hears nothing for %s", d)
	s.update(func() { s.deafUntil = time.Now().Add(d) })
	for _, x := range s.sights {
		x.Unguarded(d + 30*time.Second)
	}
}

// awaitHearing waits until Temporal hears, and returns how long that took.
func (s *scene) awaitHearing(ctx context.Context) time.Duration {
	began := time.Now()
	s.mu.Lock()
	until := s.deafUntil
	s.mu.Unlock()
	if wait := until.Sub(began); wait > 0 {
		s.untilDone(ctx, wait, func() bool { return s.over })
	}
	return time.Since(began)
}

// heartbeatTimeout is how long a server waits for a worker that died.
const heartbeatTimeout = 10 * time.Second

// onWorker binds an attempt to the life of the worker, which must be alive. alive is asked when it is through.
func (s *scene) onWorker(ctx context.Context, n int) (bound context.Context, alive func() bool) {
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	s.untilDone(ctx, forever, func() bool { return s.crashes%2 == 0 || s.over })
	s.mu.Lock()
	crashes := s.crashes
	if s.dying == nil {
		s.dying = map[int]context.CancelFunc{}
	}
	s.dying[n] = cancel
	s.mu.Unlock()
	return ctx, func() bool {
		s.mu.Lock()
		died := s.crashes != crashes
		delete(s.dying, n)
		s.mu.Unlock()
		cancel()
		if died {
			s.untilDone(outer, heartbeatTimeout, func() bool { return s.over })
		}
		return !died
	}
}

// errOver ends attempts for good.
var errOver = temporal.NewNonRetryableApplicationError("the scene is over", "Over", nil)

func (s *scene) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// quiet is a logger of nothing.
type quiet struct{}

var _ tlog.Logger = quiet{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}
