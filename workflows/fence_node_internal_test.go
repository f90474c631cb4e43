package workflows

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/unhurried"
)

// TestFewerHold: a keeper that let go and died has told nobody, whoever else holds the Machine.
func TestFewerHold(t *testing.T) {
	seen := func(uid string, held bool, holders int) fencing.Patient {
		return fencing.Patient{Machine: fencing.Machine{UID: uid, Held: held}, Holders: holders}
	}
	for _, test := range []struct {
		what        string
		before, now fencing.Patient
		want        bool
	}{
		{"nothing changed", seen("u", true, 2), seen("u", true, 2), false},
		{"one of two let go", seen("u", true, 2), seen("u", true, 1), true},
		{"the last one let go", seen("u", true, 1), seen("u", false, 0), true},
		{"one more holds it", seen("u", true, 1), seen("u", true, 2), false},
		{"it is another Machine", seen("u", true, 2), seen("v", false, 0), false},
		{"a look of an older version, then one of this", seen("u", true, 0), seen("u", true, 1), false},
		{"looks of older versions", seen("u", true, 0), seen("u", false, 0), true},
	} {
		assert.Equal(t, test.want, fewerHold(test.before, test.now), test.what)
	}
}

// fenceEnv is the fence of node-a, which was lost and is well now.
type fenceEnv struct {
	*testsuite.TestWorkflowEnvironment
	cluster    storage.ClusterKey
	lost, well fencing.Patient
	seen       fencing.Patient // by each look from now on
	stage      fencing.Stage
	requests   int
	asked      map[storage.ClusterKey]int // each of them, how often
	meanwhile  func()                     // what happens while a keeper is told something for the first time
}

func newFenceEnv() *fenceEnv {
	var suite testsuite.WorkflowTestSuite
	e := &fenceEnv{
		TestWorkflowEnvironment: unhurried.Environment(&suite),
		cluster:                 storage.ClusterKey{Namespace: "rook-ceph", Name: "rook-ceph"},
		stage:                   fencing.StageReleased,
		asked:                   map[storage.ClusterKey]int{},
	}
	e.RegisterActivity(&activities.Fence{})
	e.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "fence/node-a"})
	e.lost = fencing.Patient{
		Machine: fencing.Machine{Name: "m", UID: "u", Held: true}, Found: true, BootID: "1", UID: "n", Unhealthy: e.Now(),
	}
	e.well = e.lost
	e.well.Machine.Held, e.well.Ready, e.well.BootID, e.well.Unhealthy = false, true, "2", time.Time{}
	e.OnSignalExternalWorkflow(mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(
		func(string, string, string, string, any) error {
			if meanwhile := e.meanwhile; meanwhile != nil {
				e.meanwhile = nil
				meanwhile()
			}
			return nil
		})
	e.seen = e.well
	e.OnActivity(fencingNode.ExamineNode, mock.Anything, mock.Anything).Return(
		func(_ context.Context, in activities.ExamineInput) (activities.Examination, error) {
			if len(in.Clusters) > 0 && !slices.Contains(in.Clusters, e.cluster) {
				return activities.Examination{}, activities.Invalid("node", in.Node, "nothing is held back")
			}
			return activities.Examination{Patient: e.seen, Clusters: []storage.ClusterKey{e.cluster}}, nil
		})
	e.OnActivity(fencingNode.RequestFence, mock.Anything, mock.Anything).Return(struct{}{}, nil).
		Run(func(args mock.Arguments) {
			e.requests++
			e.asked[args.Get(1).(activities.FenceInput).Cluster]++ //nolint:forcetypeassert // of no other type
		})
	return e
}

func (e *fenceEnv) says(stage fencing.Stage) {
	e.SignalWorkflow(SignalFence, FenceNotice{Cluster: e.cluster, Stage: stage})
}

func (e *fenceEnv) input() FenceNodeInput {
	return FenceNodeInput{Node: "node-a", State: &FenceState{
		Patient: e.lost, Why: fencing.WhyUnhealthy, WhySince: e.lost.Unhealthy, Stale: true,
		Clusters: []FenceStanding{{Cluster: e.cluster, Asked: true, Stage: e.stage}},
	}}
}

func (e *fenceEnv) play(t *testing.T) (result FenceNodeResult) {
	t.Helper()
	e.ExecuteWorkflow(FenceNode, e.input())
	require.NoError(t, e.GetWorkflowError())
	require.NoError(t, e.GetWorkflowResult(&result))
	return result
}

// TestLooksAgainInTheNextRun: the history was full when the node was to be looked at. The next run does it, which hears
// from nobody of what was reported.
func TestLooksAgainInTheNextRun(t *testing.T) {
	e := newFenceEnv()
	e.SetContinueAsNewSuggested(true)
	e.ExecuteWorkflow(FenceNode, e.input())
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, e.GetWorkflowError(), &next)
	var in FenceNodeInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
	require.True(t, in.State.Stale)
}

// TestNobodyMeantTheNextMachine: a person releases a Machine that is gone by then, and another one has taken its place.
func TestNobodyMeantTheNextMachine(t *testing.T) {
	e := newFenceEnv()
	e.meanwhile = func() {
		e.seen.Machine.UID = "next"
		e.SignalWorkflow(SignalFenceRelease, FenceRelease{By: "ann", Reason: "a rack is moved"})
	}
	e.RegisterDelayedCallback(func() { e.says(fencing.StageOver) }, time.Minute)
	e.RegisterDelayedCallback(func() { e.SignalWorkflow(jobs.SignalAbort, nil) }, time.Hour)
	assert.Equal(t, OutcomeDone, e.play(t).Outcome)
}

// TestReleasedByHandAsItIsBack: a person releases a Machine while the keeper is told that its node is back.
func TestReleasedByHandAsItIsBack(t *testing.T) {
	e := newFenceEnv()
	e.meanwhile = func() {
		e.SignalWorkflow(SignalFenceRelease, FenceRelease{By: "ann", Reason: "a rack is moved"})
	}
	e.RegisterDelayedCallback(func() { e.says(fencing.StageOver) }, time.Minute)
	e.RegisterDelayedCallback(func() { e.SignalWorkflow(jobs.SignalAbort, nil) }, time.Hour)
	assert.Equal(t, OutcomeAborted, e.play(t).Outcome, "it waits for its release until then")
	assert.Positive(t, e.requests)
}

// TestWellAtTheFirstLookAfterItsRelease: a node that was started again before the job heard of the release, and looked
// at first after that, is back.
func TestWellAtTheFirstLookAfterItsRelease(t *testing.T) {
	e := newFenceEnv()
	e.RegisterDelayedCallback(func() { e.says(fencing.StageOver) }, time.Minute)
	result := e.play(t)
	assert.Equal(t, OutcomeDone, result.Outcome)
	assert.Less(t, result.Took, 5*time.Minute)
}

// TestFailsAgainAsItsFenceEnds: nobody else hears of what is reported to a job that ends, so it looks once more.
func TestFailsAgainAsItsFenceEnds(t *testing.T) {
	for what, change := range map[string]func(*fencing.Patient, time.Time){
		"it is well":             func(*fencing.Patient, time.Time) {},
		"a person releases it":   func(*fencing.Patient, time.Time) {},
		"it fails":               func(p *fencing.Patient, now time.Time) { p.Unhealthy, p.Ready = now, false },
		"its Machine is deleted": func(p *fencing.Patient, now time.Time) { p.Deleting = now },
	} {
		t.Run(what, func(t *testing.T) {
			e := newFenceEnv()
			e.stage, e.seen.Machine.Held = fencing.StageHeld, true
			e.meanwhile = func() { // while it tells the keeper that the node has recovered
				change(&e.seen, e.Now())
				if what == "a person releases it" {
					e.SignalWorkflow(SignalFenceRelease, FenceRelease{By: "ann", Reason: "a rack is moved"})
				} else {
					e.SignalWorkflow(SignalFenceChanged, "something happened")
				}
			}
			e.RegisterDelayedCallback(func() { e.SignalWorkflow(jobs.SignalAbort, nil) }, time.Hour)
			result := e.play(t)
			if what == "it is well" {
				assert.Equal(t, OutcomeRecovered, result.Outcome)
				assert.Zero(t, e.requests)
				return
			}
			assert.Equal(t, OutcomeAborted, result.Outcome, "it waits for its release until then")
			assert.Positive(t, e.requests)
		})
	}
}

// TestTheNextPolicyIsAsked: the policy that held the Machine holds nothing any more, and another one is in charge. It
// may hold the Machine, and nobody tells once more that the node is to be fenced.
func TestTheNextPolicyIsAsked(t *testing.T) {
	next := storage.ClusterKey{Namespace: "rook-ceph", Name: "next"}
	for what, change := range map[string]func(*fenceEnv){
		"a look finds out": func(e *fenceEnv) { e.cluster = next },
		"its keeper says so": func(e *fenceEnv) {
			e.SignalWorkflow(SignalFence,
				FenceNotice{Cluster: e.cluster, Stage: fencing.StageOver, Reason: fencing.ReasonNotHeld})
			e.cluster = next
		},
	} {
		for _, lost := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, and the node is lost: %t", what, lost), func(t *testing.T) {
				e := newFenceEnv()
				e.stage, e.seen = fencing.StageHeld, e.lost
				e.RegisterDelayedCallback(func() {
					if !lost {
						e.seen = e.well
					}
					change(e)
					e.SignalWorkflow(SignalFenceChanged, "the policies changed")
				}, time.Minute)
				e.RegisterDelayedCallback(func() { e.SignalWorkflow(jobs.SignalAbort, nil) }, time.Hour)
				result := e.play(t)
				assert.Equal(t, lost, e.asked[next] > 0, e.asked)
				if assert.Equal(t, lost, result.Outcome == OutcomeAborted, "it waits for its release: %s", result.Outcome); !lost {
					assert.Less(t, result.Took, 5*time.Minute)
				}
			})
		}
	}
}
