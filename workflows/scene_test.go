package workflows_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/cephosd"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/sim/mons"
	"github.com/lockkeeper/lockkeeper/test/unhurried"
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
	machines *sim.Machines

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
	races     map[string]*turnsTaken
	onAttempt func(n int, info activity.Info)
	fault     func(n int, info activity.Info) fault
	sights    []*sight                  // one for each storage cluster, first that of World
	hostInfo  *workflow.Info            // says that it is time to continue as new
	keepers   *workflow.Info            // the keeper's
	jobs      map[string]*workflow.Info // those of the jobs, by workflow ID
	continues map[string]int            // how often each job has continued as new
	osds      *osdWatcher               // of the CephOSD; nil: it has not begun
	mons      *monWorld                 // of the CephMon; nil: there is none
	monActs   time.Time                 // when the latest attempt of its job began that did anything
	monSim    *mons.World               // of the CephMon, behind our own adapters; nil: there is none
	continued int                       // how often it has
	left      workflows.KeeperResult
	blind     bool      // the watcher is down
	away      bool      // Temporal is, or cannot be reached
	crashes   int       // of the worker; odd: it is down
	deafUntil time.Time // until when Temporal hears nothing
	dying     map[int]context.CancelFunc
	// activities counts those whose workflow waits for their end when it cancels them; cancels ends an attempt of each.
	activities int
	cancels    map[string]context.CancelFunc
	cancelled  map[string]bool
}

type childStart struct {
	workflowType string
	input        any
}

type ended struct {
	result  workflows.DrainNodeResult
	rollout workflows.UpdateOSDsResult
	fence   workflows.FenceNodeResult
	removal workflows.ScaleDownNodeResult
	moved   workflows.MigrateMonsResult
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
func play(t *testing.T, opts sim.Options, script func(*scene), others ...sim.Options) {
	t.Helper()
	playOn(t, func(*worker.Adapters) {}, opts, script, others...)
}

// playOn plays with other adapters than those of the World.
func playOn(
	t *testing.T, adapt func(*worker.Adapters), opts sim.Options, script func(*scene), others ...sim.Options,
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		s := newSceneOn(t, adapt, opts, others...)
		s.run(script)
		for _, x := range s.sights {
			for _, v := range x.Violations() {
				t.Error(v)
			}
		}
		if t.Failed() || os.Getenv("STORY") != "" {
			for _, line := range s.Story() {
				t.Log(line)
			}
		}
	})
}

// newScene makes a scene of one storage cluster, or of several on the same nodes.
func newScene(t *testing.T, opts sim.Options, others ...sim.Options) *scene {
	return newSceneOn(t, func(*worker.Adapters) {}, opts, others...)
}

func newSceneOn(t *testing.T, adapt func(*worker.Adapters), opts sim.Options, others ...sim.Options) *scene {
	s := &scene{
		T: t, changed: make(chan struct{}), waiting: map[string]childStart{}, running: map[string]string{},
		last: map[string]string{}, ended: map[string]ended{}, frozen: map[string]bool{}, jobs: map[string]*workflow.Info{},
		continues: map[string]int{},
	}
	var worlds []*sim.World
	for _, opts := range append([]sim.Options{opts}, others...) {
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
		w := sim.New(opts)
		worlds, s.sights = append(worlds, w), append(s.sights, &sight{World: w})
	}
	s.World = worlds[0]
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(quiet{})
	s.env = unhurried.Environment(&suite)
	s.env.SetTestTimeout(forever)
	s.payloads = newMeasured()
	s.env.SetDataConverter(s.payloads)
	s.env.SetWorkerOptions(sdkworker.Options{
		DeadlockDetectionTimeout: unhurried.Timeout,
		Interceptors:             []interceptor.WorkerInterceptor{&faulty{scene: s}},
	})
	s.machines = s.World.Machines()
	k := s.Kubernetes()
	clusters := cephcluster.New(k, s)
	typed, api := k.Clients()
	adapters := worker.Adapters{
		Policies: k, Budgets: k, Nodes: k, Clusters: clusters,
		OSDSets: cephosd.New(typed, api, clusters), Machines: s.machines, Mons: monsOf{s},
	}
	if len(others) > 0 {
		pair := sim.NewPair(worlds...)
		adapters.Policies, adapters.Budgets, adapters.Nodes, adapters.Clusters = pair, pair, pair, pair
	}
	adapt(&adapters)
	worker.Register(registry{s.env, s}, adapters, s)
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
	for _, x := range s.sights {
		x.OnKubernetes(func() { s.look(x) })
	}
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
	for _, x := range s.sights {
		x.Close()
	}
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
	case jobs.FenceNode.Type:
		outcome, e.err = &e.fence.Outcome, f.Get(ctx, &e.fence)
	case jobs.ScaleDownNode.Type:
		outcome, e.err = &e.removal.Outcome, f.Get(ctx, &e.removal)
	case jobs.MigrateMons.Type:
		outcome, e.err = &e.moved.Outcome, f.Get(ctx, &e.moved)
	case jobs.DrainNode.Type, visitType:
		e.err = f.Get(ctx, &e.result)
	case jobs.UpdateOSDs.Type, jobs.RestartOSDs.Type, jobs.RestartWaiting.Type:
		outcome, e.err = &e.rollout.Outcome, f.Get(ctx, &e.rollout)
	default:
		e.err = f.Get(ctx, nil)
	}
	s.update(func() {
		s.Tell("%s ends: %s %v", id, *outcome, e.err)
		if e.moved.Why != "" {
			s.Tell("  %s", e.moved.Why)
		}
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
