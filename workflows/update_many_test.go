package workflows_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/unhurried"
	"github.com/lockkeeper/lockkeeper/worker"
	"github.com/lockkeeper/lockkeeper/workflows"
)

var (
	manyOSDs   = flag.Int("osds.n", 600, "how many OSDs TestManyOSDs rolls out")
	manyReport = flag.Bool("osds.report", false, "print what was measured as lines \"name value unit\"")
)

// suggestAt is when a server suggests to continue as new: limit.historyCount.suggestContinueAsNew.
const suggestAt = 4096

// TestManyOSDs rolls out so many OSDs, one after the other, that no single history could hold it: the rollout continues
// as new, forgets nothing, and no history grows past what a server suggests by more than one batch.
func TestManyOSDs(t *testing.T) {
	t.Parallel()
	began := time.Now()
	m := &many{osds: make([]rollout.OSD, *manyOSDs)}
	for i := range m.osds {
		m.osds[i] = rollout.OSD{
			Key: fmt.Sprintf("node-%04d:/dev/%02d", i/24, i%24), Name: fmt.Sprintf("osd.%d", i),
			Host: fmt.Sprintf("node-%04d", i/24), Domain: fmt.Sprintf("zone-%d", i*3/len(m.osds)), State: rollout.OutOfDate,
			Serves: true,
		}
	}
	var result workflows.UpdateOSDsResult
	in, runs, events, largest := workflows.UpdateOSDsInput{CephOSD: sim.Key.Namespace + "/" + sim.CephOSDName}, 0, 0, 0
	for again := true; again; {
		h := &tally{}
		in, result, again = m.run(t, in, h)
		runs++
		events += h.events
		largest = max(largest, h.events)
	}
	require.Equal(t, workflows.OutcomeDone, result.Outcome)
	require.Equal(t, len(m.osds), result.Replaced)
	require.Equal(t, len(m.osds), m.done)
	require.Less(t, largest, suggestAt+200, "a history does not grow")
	require.Greater(t, runs, 1)
	if *manyReport {
		fmt.Fprintf(os.Stdout, "many_osds %d count\nmany_wall_s %.1f s\nmany_runs %d count\nmany_events %d "+
			"count\nmany_events_per_osd %.1f count\nmany_largest_history %d count\n",
			len(m.osds), time.Since(began).Seconds(), runs, events, float64(events)/float64(len(m.osds)), largest)
	}
}

// many is a set of many OSDs, the policy of their cluster, and its keeper, who grants everything at once. OSDs are
// replaced in order, so that a look at the first few of those that are left is enough to decide.
type many struct {
	activities.Policies
	osds   []rollout.OSD
	done   int
	token  int64
	claim  lease.Claim
	env    *testsuite.TestWorkflowEnvironment
	osdSet activities.OSDSets // instead of itself
}

// run is one run of the rollout's chain.
func (m *many) run(
	t *testing.T, in workflows.UpdateOSDsInput, h *tally,
) (next workflows.UpdateOSDsInput, result workflows.UpdateOSDsResult, again bool) {
	t.Helper()
	m.prepare(t, updateID, h)
	m.env.ExecuteWorkflow(jobs.UpdateOSDs.Type, in)
	require.True(t, m.env.IsWorkflowCompleted())
	err := m.env.GetWorkflowError()
	var more *workflow.ContinueAsNewError
	if errors.As(err, &more) {
		require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(more.Input, &next))
		return next, result, true
	}
	require.NoError(t, err)
	require.NoError(t, m.env.GetWorkflowResult(&result))
	return next, result, false
}

// prepare makes an environment for one run of a rollout, with its keeper.
func (m *many) prepare(t *testing.T, id string, h *tally) {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(quiet{})
	m.env = unhurried.Environment(&suite)
	h.full = func() { m.env.SetContinueAsNewSuggested(true) }
	m.env.SetWorkerOptions(sdkworker.Options{
		DeadlockDetectionTimeout: unhurried.Timeout,
		Interceptors:             []interceptor.WorkerInterceptor{h},
	})
	m.env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: id, TaskQueue: workflows.TaskQueue})
	osdSet := m.osdSet
	if osdSet == nil {
		osdSet = m
	}
	worker.Register(m.env, worker.Adapters{Policies: m, OSDSets: osdSet}, m)
	m.env.OnSignalExternalWorkflow(mock.Anything, workflows.KeeperID(sim.Key), "", mock.Anything, mock.Anything).Return(
		func(_, _, _, name string, arg any) error {
			ref, _ := arg.(workflows.LeaseRef)
			switch {
			case name != workflows.SignalFinishLease:
			case ref.Next != nil:
				return m.RequestLease(t.Context(), sim.Key, *ref.Next)
			default:
				m.tell(workflows.LeaseReleased)
			}
			return nil
		})
}

// tell is the keeper's word about the claim.
func (m *many) tell(state workflows.LeaseState) {
	n := workflows.LeaseNotice{State: state, RunID: m.claim.RunID, Ask: m.claim.Ask, Token: m.token}
	m.env.RegisterDelayedCallback(func() { m.env.SignalWorkflow(workflows.SignalLease, n) }, time.Millisecond)
}

func (m *many) TellMons(context.Context, activities.MonsRef, string) error { return nil }

func (m *many) RequestLease(_ context.Context, _ storage.ClusterKey, claim lease.Claim) error {
	m.token++
	m.claim = claim
	m.claim.Token = m.token
	m.tell(workflows.LeaseGranted)
	return nil
}

func (m *many) AwaitEnd(context.Context, string, string) (string, error) {
	return "", errors.New("nobody asks")
}

func (m *many) Policy(_ context.Context, key storage.ClusterKey) (activities.Policy, error) {
	return activities.Policy{
		Key:    key,
		Memory: activities.Memory{Lease: lease.State{Token: m.token, Holders: []lease.Claim{m.claim}}},
	}, nil
}

// window is how many of the OSDs that are left a decision looks at.
const window = 50

func (m *many) Survey(_ context.Context, in activities.SurveyInput) (activities.Survey, error) {
	left := m.osds[m.done:]
	s := activities.Survey{
		Found: true, Generation: 1, Template: "2", Cluster: sim.Key,
		Rules: activities.OSDSetRules{ProgressDeadline: time.Minute},
		Next:  rollout.Next(rollout.Input{OSDs: left[:min(len(left), window)], DomainType: "zone", Skip: in.Skip}),
	}
	s.Counts.Counts = rollout.Counts{Total: len(m.osds), UpToDate: m.done, OutOfDate: len(left)}
	return s, nil
}

func (m *many) Alive(context.Context, activities.Replacement) (storage.Answer, error) {
	return storage.Answer{OK: true}, nil
}

func (m *many) Spare(_ context.Context, in activities.Replacement) ([]rollout.OSD, storage.Answer, error) {
	return in.OSDs, storage.Answer{OK: true}, nil
}

func (m *many) Replace(_ context.Context, in activities.Replacement) error {
	for _, o := range in.OSDs {
		if m.osds[m.done].Key == o.Key {
			m.osds[m.done].State = rollout.UpToDate
			m.done++
		}
	}
	return nil
}

func (m *many) Await(context.Context, activities.AwaitInput, func(activities.Arrival)) (activities.Arrival, error) {
	return activities.Arrival{}, nil
}

func (m *many) Rehearse(context.Context, activities.Replacement) (activities.Rehearsal, error) {
	return activities.Rehearsal{}, nil
}

func (m *many) Create(context.Context, activities.OSDSetRef, []string) (activities.Created, error) {
	return activities.Created{}, nil
}
func (m *many) Discard(context.Context, activities.OSDSetRef, []string) error { return nil }
func (m *many) Note(context.Context, activities.OSDSetRef) error              { return nil }
func (m *many) Remove(context.Context, activities.OSDSetRef, []string) error  { return nil }
func (m *many) Confirm(context.Context, activities.AwaitInput) error          { return nil }
func (m *many) Report(context.Context, activities.OSDSetReport) error         { return nil }

// tally counts the events that a server would write into a history, or a few more: it takes every answer for a workflow
// task of its own, though several may come together.
type tally struct {
	interceptor.WorkerInterceptorBase
	events int
	full   func()
}

const (
	ofTask     = 3 // scheduled, started, completed
	ofActivity = 3 + ofTask
	ofSignal   = 1 + ofTask
	ofTimer    = 2 // started, and fired or cancelled
	ofTelling  = 2 + ofTask
)

func (h *tally) add(n int) {
	if h.events += n; h.events >= suggestAt {
		h.full()
	}
}

func (h *tally) InterceptWorkflow(
	_ workflow.Context, next interceptor.WorkflowInboundInterceptor,
) interceptor.WorkflowInboundInterceptor {
	in := &tallyIn{tally: h}
	in.Next = next
	return in
}

type tallyIn struct {
	interceptor.WorkflowInboundInterceptorBase
	tally *tally
}

func (i *tallyIn) Init(out interceptor.WorkflowOutboundInterceptor) error {
	o := &tallyOut{tally: i.tally}
	o.Next = out
	return i.Next.Init(o)
}

func (i *tallyIn) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	i.tally.add(1 + ofTask)
	return i.Next.ExecuteWorkflow(ctx, in)
}

func (i *tallyIn) HandleSignal(ctx workflow.Context, in *interceptor.HandleSignalInput) error {
	i.tally.add(ofSignal)
	return i.Next.HandleSignal(ctx, in)
}

type tallyOut struct {
	interceptor.WorkflowOutboundInterceptorBase
	tally *tally
}

func (o *tallyOut) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	o.tally.add(ofActivity)
	return o.Next.ExecuteActivity(ctx, name, args...)
}

func (o *tallyOut) NewTimer(ctx workflow.Context, d time.Duration) workflow.Future {
	o.tally.add(ofTimer)
	return o.Next.NewTimer(ctx, d)
}

func (o *tallyOut) NewTimerWithOptions(
	ctx workflow.Context, d time.Duration, options workflow.TimerOptions,
) workflow.Future {
	o.tally.add(ofTimer)
	return o.Next.NewTimerWithOptions(ctx, d, options)
}

func (o *tallyOut) SignalExternalWorkflow(ctx workflow.Context, id, run, name string, arg any) workflow.Future {
	o.tally.add(ofTelling)
	return o.Next.SignalExternalWorkflow(ctx, id, run, name, arg)
}

func (m *many) RequestFence(context.Context, storage.ClusterKey, fencing.Target, bool) error {
	return nil
}
