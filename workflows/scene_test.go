package workflows_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	tlog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/cephosd"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/starter"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/worker"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// A scene is a simulated world with the real workflows and activities at work in it. It stands in for Temporal's server
// and for the watcher, too.
//
// The SDK's test environment runs one workflow; that one (host) starts the others as its children, under their own IDs,
// so that they can signal each other. It lives in a bubble of testing/synctest: activities block and sleep as they do
// in earnest, and an hour passes as soon as everybody waits.
type scene struct {
	*testing.T
	*sim.World
	env      *testsuite.TestWorkflowEnvironment
	payloads *measured

	mu        sync.Mutex
	changed   chan struct{}
	waiting   map[string]childStart // for the host
	running   map[string]string     // workflow ID → run
	last      map[string]string     // the same, also of those that have ended
	ended     map[string]ended      // ID@run → how
	frozen    map[string]bool       // ID@run of workflows that are terminated: nothing of theirs happens any more
	stopping  bool                  // the script is through
	over      bool
	attempts  int // of activities
	onAttempt func(n int, info activity.Info)
	fault     func(n int, info activity.Info) fault
	before    *starter.Snapshot
	hostInfo  *workflow.Info            // says that it is time to continue as new
	keepers   *workflow.Info            // the keeper's
	jobs      map[string]*workflow.Info // those of the jobs, by workflow ID
	continues map[string]int            // how often each job has continued as new
	osds      *osdWatcher               // of the CephOSD; nil: it has not begun
	continued int                       // how often it has
	left      workflows.KeeperResult
	due       bool // the watcher looks in a moment
	blind     bool // the watcher is down
	away      bool // Temporal is, or cannot be reached
	crashes   int  // of the worker; odd: it is down
	dying     map[int]context.CancelFunc
}

type childStart struct {
	workflowType string
	input        any
}

type ended struct {
	result  workflows.DrainNodeResult
	rollout workflows.UpdateOSDsResult
	err     error
}

// fault is what becomes of an activity's attempt.
type fault string

const (
	noFault   fault = ""
	notDone   fault = "fails and has done nothing"
	doneAlso  fault = "fails after having done it"
	twice     fault = "is carried out twice"
	hangs     fault = "is carried out, and then no answer comes"
	hostType        = "Host"
	visitType       = "Visit"
	terminate       = "test-terminate"
)

// play runs a script in a scene, and then takes everything down.
func play(t *testing.T, opts sim.Options, script func(*scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		s := newScene(t, opts)
		s.run(script)
		for _, v := range s.Violations() {
			t.Error(v)
		}
		if t.Failed() || os.Getenv("STORY") != "" {
			for _, line := range s.Story() {
				t.Log(line)
			}
		}
	})
}

func newScene(t *testing.T, opts sim.Options) *scene {
	s := &scene{
		T: t, changed: make(chan struct{}), waiting: map[string]childStart{}, running: map[string]string{},
		last: map[string]string{}, ended: map[string]ended{}, frozen: map[string]bool{}, jobs: map[string]*workflow.Info{},
		continues: map[string]int{},
	}
	fail := opts.Fail
	opts.Fail = func(ctx context.Context, op string) sim.Failure {
		if err := s.stopFrozen(ctx); err != nil {
			return sim.Failure{Err: err}
		}
		if fail != nil {
			return fail(ctx, op)
		}
		return sim.Failure{}
	}
	s.World = sim.New(opts)
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(quiet{})
	s.env = suite.NewTestWorkflowEnvironment()
	s.env.SetTestTimeout(forever)
	s.payloads = newMeasured()
	s.env.SetDataConverter(s.payloads)
	s.env.SetWorkerOptions(sdkworker.Options{
		DeadlockDetectionTimeout: workflows.DeadlockTimeout,
		Interceptors:             []interceptor.WorkerInterceptor{&faulty{scene: s}},
	})
	k := s.Kubernetes()
	clusters := cephcluster.New(k, s)
	typed, api := k.Clients()
	worker.Register(registry{s.env, s},
		worker.Adapters{Policies: k, Budgets: k, Nodes: k, Clusters: clusters, OSDSets: cephosd.New(typed, api, clusters)}, s)
	s.env.RegisterWorkflowWithOptions(chained(s, workflows.Visit), workflow.RegisterOptions{Name: visitType})
	s.env.RegisterWorkflowWithOptions(s.host, workflow.RegisterOptions{Name: hostType})
	s.env.RegisterActivityWithOptions(s.clock, activity.RegisterOptions{Name: "clock"})
	s.env.OnSignalExternalWorkflow(mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(
		errors.New("no such workflow"))
	s.env.OnRequestCancelExternalWorkflow(mock.Anything, mock.Anything, mock.Anything).Return(
		errors.New("no such workflow"))
	return s
}

// run plays the script beside the host.
func (s *scene) run(script func(*scene)) {
	done := make(chan struct{})
	s.OnKubernetes(s.look)
	s.keepTime()
	go s.ensureKeeper()
	go s.audit()
	go s.judgeStatus()
	go func() {
		defer close(done)
		defer func() {
			s.env.SignalWorkflow("stop", nil)
		}()
		time.Sleep(time.Millisecond) // the host has begun
		script(s)
	}()
	s.env.ExecuteWorkflow(hostType)
	<-done
	s.Close()
	require.NoError(s, s.env.GetWorkflowError())
	require.Less(s, s.payloads.largest.Load(), int64(mostPayload), "bytes of the largest payload")
	time.Sleep(time.Hour) // whoever still sleeps wakes up and finds that the world has ended
}

const forever = 10 * 365 * 24 * time.Hour

// clockStep is how far the time of workflows may lag behind the time of activities.
const clockStep = 250 * time.Millisecond

// keepTime makes the test environment's clock go with the bubble's: it advances by timers alone.
func (s *scene) keepTime() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
	case s.stopping:
		s.env.RegisterDelayedCallback(s.keepTime, 20*clockStep)
	default:
		s.env.RegisterDelayedCallback(s.keepTime, clockStep)
	}
}

// clock is an activity that is always under way. Without one the test environment would let time jump.
func (s *scene) clock(context.Context) error {
	s.until(forever, func() bool { return s.over })
	return nil
}

// host starts what the script and the watcher ask for.
func (s *scene) host(ctx workflow.Context) error {
	s.hostInfo = workflow.GetInfo(ctx)
	clockCtx := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: forever})
	clock := workflow.ExecuteActivity(clockCtx, "clock")
	childCtx, cancel := workflow.WithCancel(ctx)
	start := workflow.GetSignalChannel(ctx, "start")
	stop := workflow.GetSignalChannel(ctx, "stop")
	for stopped := false; !stopped; {
		sel := workflow.NewSelector(ctx)
		sel.AddReceive(stop, func(c workflow.ReceiveChannel, _ bool) { stopped = c.Receive(ctx, nil) })
		sel.AddReceive(start, func(c workflow.ReceiveChannel, _ bool) {
			var id string
			c.Receive(ctx, &id)
			workflow.Go(childCtx, func(ctx workflow.Context) { s.child(ctx, id) })
		})
		sel.Select(ctx)
	}
	cancel()
	s.update(func() { s.stopping = true })
	// Attempts that are under way hear of their end by a heartbeat.
	if err := workflow.Sleep(ctx, 4*time.Minute); err != nil {
		return err
	}
	s.update(func() { s.over = true })
	if err := clock.Get(ctx, nil); err != nil {
		return err
	}
	// Attempts that wait for another try make it now, and are told that there is none.
	return workflow.Sleep(ctx, time.Hour)
}

func (s *scene) child(ctx workflow.Context, id string) {
	s.mu.Lock()
	c := s.waiting[id]
	s.mu.Unlock()
	// Without a run timeout the test environment gives a child's activities no heartbeat timeout.
	ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID: id, TaskQueue: workflows.TaskQueue,
		WorkflowRunTimeout: forever, WaitForCancellation: true,
	})
	f := workflow.ExecuteChildWorkflow(ctx, c.workflowType, c.input)
	var exec workflow.Execution
	if err := f.GetChildWorkflowExecution().Get(ctx, &exec); err != nil {
		s.update(func() { delete(s.waiting, id) })
		return // it runs already
	}
	s.update(func() {
		delete(s.waiting, id)
		s.running[id], s.last[id] = exec.RunID, exec.RunID
	})
	var e ended
	outcome := &e.result.Outcome
	switch c.workflowType {
	case jobs.DrainNode.Type, visitType:
		e.err = f.Get(ctx, &e.result)
	case jobs.UpdateOSDs.Type, jobs.RestartOSDs.Type:
		outcome, e.err = &e.rollout.Outcome, f.Get(ctx, &e.rollout)
	default:
		e.err = f.Get(ctx, nil)
	}
	s.update(func() {
		s.Tell("%s ends: %s %v", id, *outcome, e.err)
		delete(s.running, id)
		if _, known := s.ended[id+"@"+exec.RunID]; !known {
			s.ended[id+"@"+exec.RunID] = e
		}
	})
}

func (s *scene) update(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// until waits for something about workflows.
func (s *scene) until(within time.Duration, cond func() bool) bool {
	return s.untilDone(context.Background(), within, cond)
}

func (s *scene) untilDone(ctx context.Context, within time.Duration, cond func() bool) bool {
	end := time.After(within)
	for {
		s.mu.Lock()
		ok, changed := cond(), s.changed
		s.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-end:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// post runs f where the test environment wants to be called, and after whatever has just begun has run for a first
// time: before, the environment cannot bear a word to it.
func (s *scene) post(f func()) { s.env.RegisterDelayedCallback(f, time.Millisecond) }

// start starts a workflow unless one with this ID runs, and waits until it does.
func (s *scene) start(id, workflowType string, input any) string {
	s.mu.Lock()
	_, runs := s.running[id]
	_, starts := s.waiting[id]
	if !runs && !starts && !s.over {
		s.waiting[id] = childStart{workflowType, input}
		s.env.SignalWorkflow("start", id)
	}
	s.mu.Unlock()
	s.until(time.Minute, func() bool { _, waits := s.waiting[id]; return !waits && s.last[id] != "" || s.over })
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[id]
}

func (s *scene) startKeeper() {
	s.start(workflows.KeeperID(sim.Key), jobs.Keeper.Type, workflows.NewKeeperInput(sim.Key))
}

// drain starts a drain as a person would.
func (s *scene) drain(in workflows.DrainNodeInput) (run string) {
	s.Tell("a person drains %s", in.Node)
	return s.start(jobs.DrainNode.ID(in.Node), jobs.DrainNode.Type, in)
}

// cancel cancels a workflow, as a person may do in Temporal's UI.
func (s *scene) cancel(id string) {
	s.Tell("%s is cancelled", id)
	s.post(func() { s.env.CancelWorkflowByID(id, "") })
}

func (s *scene) signal(id, name string, arg any) {
	if s.runs(id) {
		s.post(func() { _ = s.env.SignalWorkflowByID(id, name, arg) })
	}
}

// tellDrain sends one of the signals that persons send.
func (s *scene) tellDrain(node, signal string) {
	s.Tell("a person tells the drain of %s: %s", node, signal)
	s.signal(jobs.DrainNode.ID(node), signal, nil)
}

// runs tells whether a workflow runs.
func (s *scene) runs(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.running[id]
	return ok
}

// dead tells whether a workflow was terminated, though the test environment may not have noticed yet.
func (s *scene) dead(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frozen[id+"@"+s.running[id]]
}

// awaitEnd waits for the end of a drain.
func (s *scene) awaitEnd(node, run string, within time.Duration) ended {
	s.Helper()
	key := jobs.DrainNode.ID(node) + "@" + run
	var e ended
	if !s.until(within, func() (ok bool) { e, ok = s.ended[key]; return ok }) {
		s.Errorf("the drain of %s has not ended: %+v", node, s.drainStatus(node))
	}
	return e
}

func (s *scene) drainStatus(node string) (status workflows.DrainStatus) {
	s.query(jobs.DrainNode.ID(node), &status)
	return status
}

func (s *scene) keeperStatus() (status workflows.KeeperStatus) {
	s.query(workflows.KeeperID(sim.Key), &status)
	return status
}

func (s *scene) query(id string, into any) {
	done := make(chan struct{})
	s.post(func() {
		defer close(done)
		defer func() { _ = recover() }() // the test environment panics when the workflow has only just begun
		if v, err := s.env.QueryWorkflowByID(id, workflows.QueryStatus); err == nil {
			_ = v.Get(into)
		}
	})
	<-done
}

// kill terminates a workflow: it does nothing more, and whoever waits for its end hears of it.
func (s *scene) kill(id string) {
	s.Tell("%s is terminated", id)
	s.update(func() {
		run := s.running[id]
		s.frozen[id+"@"+run] = true
		s.ended[id+"@"+run] = ended{err: errors.New("terminated")}
	})
}

// killKeeper terminates the keeper. Another one may be started then.
func (s *scene) killKeeper() {
	id := workflows.KeeperID(sim.Key)
	s.kill(id)
	s.signal(id, terminate, nil)
	require.True(s, s.until(time.Minute, func() bool { _, runs := s.running[id]; return !runs }))
}

// continueKeeper has the keeper continue as new.
func (s *scene) continueKeeper() {
	s.Tell("the keeper continues as new")
	s.mu.Lock()
	before := s.continued
	s.mu.Unlock()
	s.post(func() { s.suggestContinueAsNew(true) })
	time.Sleep(2 * time.Millisecond)
	s.signal(workflows.KeeperID(sim.Key), workflows.SignalStorageChanged, workflows.Hint{Reason: "a test"})
	if !s.until(5*time.Minute, func() bool {
		return s.continued > before ||
			s.running[workflows.KeeperID(sim.Key)] == ""
	}) {
		s.Error("the keeper does not continue as new")
	}
}

// stopFrozen keeps what a terminated workflow began from going on.
func (s *scene) stopFrozen(ctx context.Context) error {
	if !activity.IsActivity(ctx) {
		return nil
	}
	e := activity.GetInfo(ctx).WorkflowExecution
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen[e.ID+"@"+e.RunID] {
		return temporal.NewNonRetryableApplicationError("terminated", "Terminated", nil)
	}
	return nil
}

// awaitBudget waits until the budget says so.
func (s *scene) awaitBudget(want string, within time.Duration) {
	s.Helper()
	if !s.Await(within, func() bool { return s.Budget() == want }) {
		s.Errorf("the budget should say %q, it says %q: %+v", want, s.Budget(), s.keeperStatus().Decision)
	}
}

// awaitPhase waits until a drain is in a phase.
func (s *scene) awaitPhase(node, phase string, within time.Duration) {
	s.Helper()
	if !s.Await(within, func() bool { return s.drainStatus(node).Phase == phase }) {
		s.Errorf("the drain of %s should be %s: %+v", node, phase, s.drainStatus(node))
	}
}

const atRest = "at rest, 5 must stay"

func only(zone string) string { return fmt.Sprintf("only zone [zone-%s] is open", zone) }

// awaitNothingLeft waits until all that lockkeeper changed is changed back.
func (s *scene) awaitNothingLeft(within time.Duration) {
	s.Helper()
	if !s.Await(within, func() bool { return len(s.Leftovers()) == 0 }) {
		s.Errorf("left behind: %q", s.Leftovers())
	}
}

// atRest plays until the keeper has seen that all is well.
func (s *scene) settle() {
	s.Helper()
	s.startKeeper()
	s.awaitBudget(atRest, time.Minute)
	s.awaitNothingLeft(time.Minute)
	// The budget's number is written before the pods are marked, and until then nobody may go.
	if !s.Await(time.Minute, func() bool { return s.MayGo("osd.1") == nil }) {
		s.Errorf("at rest osd.1 might go: %v", s.MayGo("osd.1"))
	}
}

// RequestLease implements activities.Keepers as the worker does: by an update that starts the keeper if need be.
func (s *scene) RequestLease(ctx context.Context, cluster storage.ClusterKey, claim lease.Claim) error {
	id := workflows.KeeperID(cluster)
	s.startKeeper()
	answer := make(chan error, 1)
	s.post(func() {
		if s.dead(id) {
			answer <- errors.New("the keeper is terminated")
			return
		}
		err := s.env.UpdateWorkflowByID(id, workflows.UpdateRequestLease, rand.Text(), &testsuite.TestUpdateCallback{
			OnAccept:   func() {},
			OnReject:   func(err error) { answer <- err },
			OnComplete: func(_ any, err error) { answer <- err },
		}, workflows.LeaseRequest{Claim: claim})
		if err != nil {
			answer <- err
		}
	})
	select {
	case err := <-answer:
		return err
	case <-time.After(5 * time.Second):
		return errors.New("the keeper does not answer")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// AwaitEnd implements activities.Jobs.
func (s *scene) AwaitEnd(ctx context.Context, id, run string) (string, error) {
	stop := context.AfterFunc(ctx, func() { s.update(func() {}) })
	defer stop()
	var e ended
	var ok bool
	s.until(forever, func() bool { e, ok = s.ended[id+"@"+run]; return ok || s.over || ctx.Err() != nil })
	if !ok {
		return "", errors.New("nobody waits any more")
	}
	return fmt.Sprint(e.err), nil
}

// look is the watcher: it compares what it sees with what it saw, and tells the keeper, or starts a drain that
// observes. Changes that it has not looked at yet are one look.
func (s *scene) look() {
	s.mu.Lock()
	due := s.due
	s.due = true
	s.mu.Unlock()
	if due {
		return
	}
	time.Sleep(20 * time.Millisecond)
	s.mu.Lock()
	s.due = false
	if s.blind || s.over {
		s.mu.Unlock()
		return
	}
	away := s.away
	now, exists := s.Snapshot(s.before)
	if !exists {
		s.before = nil
		s.mu.Unlock()
		s.lookAtOSDs()
		return
	}
	todo, alarm := starter.Decide(s.before, now), starter.Alarm(s.before, now)
	s.before = &now
	s.mu.Unlock()
	if alarm != "" && s.Managed() {
		s.Tell("the watcher closes: %s", alarm)
		if err := s.CloseBudgets(context.Background(), alarm); err != nil {
			s.Tell("the watcher could not close: %v", err)
		}
	}
	s.lookAtOSDs()
	if todo.IsZero() {
		return
	}
	if away {
		s.until(forever, func() bool { return !s.away || s.over }) // the watcher tries again until it lands
	}
	s.startKeeper()
	s.signal(workflows.KeeperID(sim.Key), workflows.SignalStorageChanged, todo.Hint)
	for node, why := range todo.Drains {
		s.start(jobs.DrainNode.ID(node), jobs.DrainNode.Type,
			workflows.DrainNodeInput{Node: node, Policy: sim.Key.String(), Reason: why, Observe: true})
	}
}

// ensureKeeper is what the watcher does once a minute.
func (s *scene) ensureKeeper() {
	for !s.until(time.Minute, func() bool { return s.over }) {
		s.mu.Lock()
		blind := s.blind || s.before == nil
		s.mu.Unlock()
		if s.PolicyExists() && !blind {
			s.startKeeper()
		}
	}
}

// blindfold stops the watcher, or starts it again.
func (s *scene) blindfold(blind bool) {
	s.update(func() {
		if s.blind = blind; blind {
			s.osds = nil // it begins anew, and knows nothing
		}
	})
	if !blind {
		s.look()
	}
}

// registry dresses workflows up: in the test environment a child has no first run, and nobody can be terminated.
type registry struct {
	*testsuite.TestWorkflowEnvironment
	scene *scene
}

func (r registry) RegisterWorkflowWithOptions(w any, o workflow.RegisterOptions) {
	switch w := w.(type) {
	case func(workflow.Context, workflows.KeeperInput) (workflows.KeeperResult, error):
		r.TestWorkflowEnvironment.RegisterWorkflowWithOptions(
			func(ctx workflow.Context, in workflows.KeeperInput) (workflows.KeeperResult, error) {
				return r.scene.keeper(ctx, w, in)
			}, o)
	case func(workflow.Context, workflows.DrainNodeInput) (workflows.DrainNodeResult, error):
		r.TestWorkflowEnvironment.RegisterWorkflowWithOptions(chained(r.scene, w), o)
	case func(workflow.Context, workflows.UpdateOSDsInput) (workflows.UpdateOSDsResult, error):
		r.TestWorkflowEnvironment.RegisterWorkflowWithOptions(chained(r.scene, w), o)
	case func(workflow.Context, workflows.RestartOSDsInput) (workflows.UpdateOSDsResult, error):
		r.TestWorkflowEnvironment.RegisterWorkflowWithOptions(chained(r.scene, w), o)
	default:
		panic(fmt.Sprintf("a workflow of an unknown shape: %T", w))
	}
}

// keeper runs the keeper until it ends, or is terminated. When it continues as new, it goes on here: the test
// environment would begin a child anew, but never quite end the old one.
func (s *scene) keeper(ctx workflow.Context, keeper func(workflow.Context, workflows.KeeperInput) (workflows.KeeperResult, error), in workflows.KeeperInput) (result workflows.KeeperResult, err error) {
	info := workflow.GetInfo(ctx)
	info.FirstRunID = info.WorkflowExecution.RunID
	s.update(func() { s.keepers = info })
	terminated := false
	workflow.Go(ctx, func(ctx workflow.Context) {
		workflow.GetSignalChannel(ctx, terminate).Receive(ctx, nil)
		terminated = true
	})
	for {
		runCtx, end := workflow.WithCancel(ctx)
		done := false
		workflow.Go(runCtx, func(ctx workflow.Context) { result, err = keeper(ctx, in); done = true })
		if err := workflow.Await(ctx, func() bool { return done || terminated }); err != nil {
			end()
			return result, err
		}
		end()
		var next *workflow.ContinueAsNewError
		switch {
		case terminated:
			return result, errors.New("terminated")
		case !errors.As(err, &next):
			s.update(func() { s.left = result })
			return result, err
		}
		in = workflows.KeeperInput{}
		if err := converter.GetDefaultDataConverter().FromPayloads(next.Input, &in); err != nil {
			return result, err
		}
		s.suggestContinueAsNew(false)
		s.update(func() { s.continued++ })
	}
}

// suggestContinueAsNew tells the keeper whether its history is long enough. The test environment can tell that to the
// host only; what it told the host is passed on. It must be called where workflows run.
func (s *scene) suggestContinueAsNew(suggest bool) { s.suggestTo(s.keepers, suggest) }

func (s *scene) suggestTo(info *workflow.Info, suggest bool) {
	s.env.SetContinueAsNewSuggested(suggest)
	own := *info
	*info = *s.hostInfo
	to, from := reflect.ValueOf(info).Elem(), reflect.ValueOf(own)
	for i := range to.NumField() {
		if to.Field(i).CanSet() {
			to.Field(i).Set(from.Field(i))
		}
	}
}

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
	"AwaitNode": true, "ReplaceBatch": true, "AwaitOSDs": true,
}

// thorough are those that heartbeat, and may take minutes.
var thorough = map[string]bool{
	"MarkPods": true, "UnmarkPods": true, "ReleasePods": true,
	"SurveyOSDs": true, "RehearseBatch": true, "CreatePods": true, "DiscardPods": true, "NotePods": true,
	"RemoveOSDs": true, "ConfirmOSDs": true,
}

// attemptTimeout is what the workflows give an attempt of the others. The test environment gives it to all attempts
// together, and retries none that takes longer, so it is told of none (patient), and faultyActivity sees to it.
const attemptTimeout = 10 * time.Second

func (f *faulty) InterceptWorkflow(
	_ workflow.Context, next interceptor.WorkflowInboundInterceptor,
) interceptor.WorkflowInboundInterceptor {
	p := &patientInbound{}
	p.Next = next
	return p
}

type patientInbound struct {
	interceptor.WorkflowInboundInterceptorBase
}

func (p *patientInbound) Init(out interceptor.WorkflowOutboundInterceptor) error {
	o := &patient{}
	o.Next = out
	return p.Next.Init(o)
}

type patient struct {
	interceptor.WorkflowOutboundInterceptorBase
}

func (p *patient) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	o := workflow.GetActivityOptions(ctx)
	o.StartToCloseTimeout = forever
	// The test environment lets the heartbeat's time run on from one attempt to the next, and never tries again after a
	// silence, such as that of a worker which is away for minutes. faultyActivity sees to it.
	if thorough[name] || name == "AwaitOSDs" || name == "AwaitNode" {
		o.HeartbeatTimeout = forever
	}
	if o.RetryPolicy != nil && o.RetryPolicy.MaximumAttempts == 0 {
		unlimited := *o.RetryPolicy // and not ten times, as the test environment has it
		unlimited.MaximumAttempts = 1_000_000
		o.RetryPolicy = &unlimited
	}
	return p.Next.ExecuteActivity(workflow.WithActivityOptions(ctx, o), name, args...)
}

type faultyActivity struct {
	interceptor.ActivityInboundInterceptorBase
	scene *scene
}

func (a *faultyActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	s, info := a.scene, activity.GetInfo(ctx)
	if info.ActivityType.Name == "clock" {
		return a.Next.ExecuteActivity(ctx, in)
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
	s.mu.Lock()
	n := s.attempts
	s.attempts++
	onAttempt, what := s.onAttempt, s.fault
	s.mu.Unlock()
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
	switch lives := alive(); {
	case s.isOver():
		return nil, errOver
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
	s.Unguarded(map[bool]time.Duration{true: forever, false: 30 * time.Second}[down])
	if !down {
		s.Guarded(30 * time.Second)
	}
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
