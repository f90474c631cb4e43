package workflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/unhurried"
	"github.com/lockkeeper/lockkeeper/workflows"
)

const drainFields = "node, policy, reason, observe, uncordonAfterReboot, taint, eviction"

// TestBadInputIsRefused: a workflow that makes no sense fails at its first step, and says which field, which value, and
// what is allowed. No activity is registered, so it cannot have done anything.
func TestBadInputIsRefused(t *testing.T) {
	t.Parallel()
	drain, keeper := jobs.DrainNode.Type, jobs.Keeper.Type
	for name, c := range map[string]struct{ workflow, id, input, want string }{
		"misspelt field": {drain, "drain/a", `{"nod": "a"}`, `nod: "\"a\"": no such field; allowed are ` + drainFields},
		"another case": {drain, "drain/a", `{"Node": "a"}`, `Node: "\"a\"": no such field; allowed are ` +
			drainFields},
		"misspelt deep inside": {
			drain, "drain/a", `{"node": "a", "eviction": {"forse": true}}`,
			`eviction.forse: "true": no such field; allowed are gracePeriodSeconds, podSelector, deleteEmptyDirData, force`,
		},
		"named twice":       {drain, "drain/a", `{"node": "a", "node": "b"}`, `node: "\"b\"": is named twice`},
		"number for a name": {drain, "drain/7", `{"node": 7}`, `node: "7": must be a string, not number`},
		"word for a switch": {
			drain, "drain/a", `{"node": "a", "observe": "yes"}`,
			`observe: "\"yes\"": must be true or false, not string`,
		},
		"word for a number": {
			drain, "drain/a", `{"node": "a", "eviction": {"gracePeriodSeconds": "1m"}}`,
			`eviction.gracePeriodSeconds: "\"1m\"": must be a whole number, not string`,
		},
		"not an object": {drain, "drain/a", `"a"`, `input: "\"a\"": must be a JSON object with the fields ` +
			drainFields},
		"a list": {drain, "drain/a", `["a"]`, `input: "[\"a\"]": must be a JSON object with the fields ` +
			drainFields},
		"nothing": {drain, "drain/", `{}`, `node: "": the name of a node is required; ` +
			"`kubectl get nodes` lists them"},
		"no name of a node": {
			drain, "drain/../secrets", `{"node": "../secrets"}`,
			`node: "../secrets": must be the name of a node: lower-case letters, digits, '-' and '.', at most 253 of them`,
		},
		"what waits, nowhere": {jobs.RestartWaiting.Type, "restart-waiting/", `{}`, `policy: "": must be`},
		"what waits, under another ID": {
			jobs.RestartWaiting.Type, "restart-waiting/ceph/b", `{"policy": "ceph/a"}`,
			`there is one restart of what waits for each policy, under this ID`,
		},
		"what waits, misspelt": {jobs.RestartWaiting.Type, "restart-waiting/ceph/a", `{"polizy": "ceph/a"}`, `polizy: "\"ceph/a\"": no such field`},
		"what waits, in no time": {
			jobs.RestartWaiting.Type, "restart-waiting/ceph/a", `{"policy": "ceph/a", "progressDeadline": 5}`,
			`progressDeadline: "5ns": must be 1s or more`,
		},
		"fence of nothing": {jobs.FenceNode.Type, "fence/", `{}`, `node: "": the name of a node is required`},
		"fence, misspelt": {
			jobs.FenceNode.Type, "fence/a", `{"node": "a", "relaese": {}}`, `relaese: "{}": no such field; allowed are node`,
		},
		"fence under another ID": {
			jobs.FenceNode.Type, "fence/b", `{"node": "a"}`, `there is one fence of a node at a time, under this ID`,
		},
		"fence with half a policy": {
			jobs.FenceNode.Type, "fence/a", `{"node": "a", "policy": "a/b,c"}`, `policy: "c": must be`,
		},
		"scale-down of nothing": {
			jobs.ScaleDownNode.Type, "scale-down/", `{}`, `node: "": the name of a node is required`,
		},
		"scale-down, misspelt": {
			jobs.ScaleDownNode.Type, "scale-down/a", `{"node": "a", "evict": true}`,
			`evict: "true": no such field; allowed are node, policy, reason`,
		},
		"scale-down under another ID": {
			jobs.ScaleDownNode.Type, "scale-down/b", `{"node": "a"}`,
			`there is one scale-down of a node at a time, under this ID`,
		},
		"scale-down with half a policy": {
			jobs.ScaleDownNode.Type, "scale-down/a", `{"node": "a", "policy": "a/b,c"}`, `policy: "c": must be`,
		},
		"release by nobody": {
			jobs.FenceNode.Type, "fence/a", `{"node": "a", "release": {"reason": "it burns"}}`,
			`release.by: "": is required: it is kept in status, event and history`,
		},
		"release for nothing": {
			jobs.FenceNode.Type, "fence/a", `{"node": "a", "release": {"by": "ann", "reason": " "}}`,
			`release.reason: " ": is required: it is kept in status, event and history`,
		},
		"half a policy": {
			drain, "drain/a", `{"node": "a", "policy": "ceph"}`,
			`policy: "ceph": must be namespace/name of a MaintenancePolicy; ` +
				"`kubectl get maintenancepolicies -A` lists them",
		},
		"too much policy": {
			drain, "drain/a", `{"node": "a", "policy": "a/b/c"}`,
			`policy: "a/b/c": the name must be lower-case letters, digits, '-' and '.', at most 253 of them`,
		},
		"negative seconds": {
			drain, "drain/a", `{"node": "a", "eviction": {"gracePeriodSeconds": -1}}`,
			`eviction.gracePeriodSeconds: "-1": must be between 0 and 604800; leave it out for each pod's own`,
		},
		"absurd seconds": {
			drain, "drain/a", `{"node": "a", "eviction": {"gracePeriodSeconds": 99999999}}`,
			`eviction.gracePeriodSeconds: "99999999": must be between 0 and 604800; leave it out for each pod's own`,
		},
		"odd selector": {
			drain, "drain/a", `{"node": "a", "eviction": {"podSelector": "a in ("}}`,
			`eviction.podSelector: "a in (": must be a label selector such as app=web: unable to parse requirement: found '', expected: ',', ')' or identifier`,
		},
		"no taint": {
			drain, "drain/a", `{"node": "a", "taint": "a=b"}`, `taint: "a=b": must be the key of a taint: `,
		},
		"a taint, and what it says already": {
			drain, "drain/a", `{"node": "a", "taint": "a", "observe": true}`,
			`taint: "a": says what goes and when the drain ends; leave out observe, uncordonAfterReboot and eviction`,
		},
		"a novel": {
			drain, "drain/a", `{"node": "a", "reason": "` + strings.Repeat("x", 501) + `"}`,
			`must be at most 500 characters, not 501`,
		},
		"another ID": {
			drain, "my-drain", `{"node": "a"}`,
			`workflow ID: "my-drain": must be drain/a: there is one drain of a node at a time, under this ID`,
		},

		"keeper, misspelt field": {
			keeper, "keeper/a/b", `{"clusters": {}}`,
			`clusters: "{}": no such field; allowed are cluster, state`,
		},
		"keeper, misspelt inside": {
			keeper, "keeper/a/b", `{"cluster": {"namespace": "a", "nme": "b"}}`,
			`cluster.nme: "\"b\"": no such field; allowed are namespace, name`,
		},
		"keeper of a string": {
			keeper, "keeper/a/b", `{"cluster": "a/b"}`,
			`cluster: "\"a/b\"": must be an object with the fields namespace, name, not string`,
		},
		"keeper of nothing": {
			keeper, "keeper/a/b", `{}`,
			`cluster: "/": namespace and name of a MaintenancePolicy are required`,
		},
		"keeper of no name": {
			keeper, "keeper/A/b", `{"cluster": {"namespace": "A", "name": "b"}}`,
			`cluster: "A/b": the namespace must be lower-case letters, digits and '-', at most 63 of them`,
		},
		"keeper with odd state": {
			keeper, "keeper/a/b",
			`{"cluster": {"namespace": "a", "name": "b"}, "state": {"since": 7}}`,
			`state: "{\"since\":7}": is written by a keeper alone; leave it out: `,
		},
		"keeper under another ID": {
			keeper, "keeper-2", `{"cluster": {"namespace": "a", "name": "b"}}`,
			`workflow ID: "keeper-2": must be keeper/a/b: there is one keeper of a storage cluster, under this ID`,
		},
		"keeper with no input": {
			keeper, "keeper/a/b", `null`,
			`input: "null": must be a JSON object with the fields cluster, state`,
		},
		"drain with a null inside": {drain, "drain/", `{"node": null}`, `node: "": the name of a node is required; `},
	} {
		t.Run(name, func(t *testing.T) {
			err := execute(c.workflow, c.id, json.RawMessage(c.input))
			var app *temporal.ApplicationError
			require.ErrorAs(t, err, &app)
			assert.Equal(t, activities.InvalidInput, app.Type())
			assert.True(t, app.NonRetryable())
			assert.Contains(t, app.Message(), c.want)
		})
	}
}

func execute(workflowType, id string, args ...any) error {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(quiet{})
	env := unhurried.Environment(&suite)
	env.RegisterWorkflow(workflows.DrainNode)
	env.RegisterWorkflow(workflows.RestartWaiting)
	env.RegisterWorkflow(workflows.FenceNode)
	env.RegisterWorkflow(workflows.ScaleDownNode)
	env.RegisterWorkflow(workflows.Keeper)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: id})
	if workflowType == jobs.Keeper.Type { // what runs within the task has to be registered
		env.RegisterActivityWithOptions(
			func(context.Context, activities.ObserveInput) (activities.Observation, error) {
				env.CancelWorkflow()
				return activities.Observation{}, nil
			}, activity.RegisterOptions{Name: "ObserveStorage"})
	}
	env.ExecuteWorkflow(workflowType, args...)
	if !env.IsWorkflowCompleted() {
		return errors.New("has not ended")
	}
	return env.GetWorkflowError()
}

// TestInputThatIsNoJSON: what cannot be decoded at all fails the workflow, too, instead of being tried for ever.
func TestInputThatIsNoJSON(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"drain/a", "keeper/a/b"} {
		workflowType := map[bool]string{true: jobs.DrainNode.Type, false: jobs.Keeper.Type}[strings.HasPrefix(id, "drain")]
		require.ErrorContains(t, execute(workflowType, id, []byte("\x00\xff")), "unable to decode")
		require.ErrorContains(t, execute(workflowType, id), "required", "no input at all")
	}
}

// TestInputsSurviveTheWire: what a client sends is what the workflow gets.
func TestInputsSurviveTheWire(t *testing.T) {
	t.Parallel()
	grace := 30
	in := workflows.DrainNodeInput{
		Node: "a", Policy: "b/c", Reason: "d", Observe: true, UncordonAfterReboot: true,
		Eviction: activities.EvictionOptions{
			GracePeriodSeconds: &grace, PodSelector: "e=f", DeleteEmptyDirData: true,
			Force: true,
		},
	}
	p, err := converter.GetDefaultDataConverter().ToPayload(in)
	require.NoError(t, err)
	var got workflows.DrainNodeInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayload(p, &got))
	assert.Equal(t, in, got)

	// A state of a newer version: what it knows more is passed over.
	var keeper workflows.KeeperInput
	require.NoError(t, json.Unmarshal(
		[]byte(`{"cluster":{"namespace":"a","name":"b"},"state":{"conflict":"c","ofTheFuture":1}}`), &keeper))
	require.NotNil(t, keeper.State)
	assert.Equal(t, "c", keeper.State.Conflict)
}

// FuzzInputs: whatever a workflow is started with, it ends at once and says what is wrong, or comes to its first
// activity.
func FuzzInputs(f *testing.F) {
	for _, s := range []string{
		`{"node":"a"}`, `{"node":"a","policy":"b/c","eviction":{"gracePeriodSeconds":5,"podSelector":"a=b"}}`, `{"nod":1}`,
		`{"":""}`, `{"cluster":{"namespace":"a","name":"b"}}`,
		`{"cluster":{"namespace":"a","name":"b"},"state":{"memory":{"lease":{"holders":[{}]}}}}`, `null`, `[]`,
		`{"node":"\ud800"}`, `{"policy":"a/b"}`, `{"node":"a","release":{"by":"b","reason":"c"},"state":{"clusters":[{}]}}`,
		`{"policy":"a/b","state":{"letGo":[{}]}}`,
	} {
		f.Add([]byte(s), "drain/a")
		f.Add([]byte(s), "keeper/a/b")
		f.Add([]byte(s), "fence/a")
		f.Add([]byte(s), "restart-waiting/a/b")
	}
	f.Fuzz(func(t *testing.T, data []byte, id string) {
		if !json.Valid(data) {
			return
		}
		for _, workflowType := range []string{
			jobs.DrainNode.Type, jobs.Keeper.Type, jobs.FenceNode.Type, jobs.ScaleDownNode.Type,
			jobs.RestartWaiting.Type,
		} {
			err := execute(workflowType, id, json.RawMessage(data))
			var app *temporal.ApplicationError
			switch {
			case temporal.IsCanceledError(err), strings.Contains(err.Error(), "no activity is registered"),
				strings.Contains(err.Error(), "unable to find activityType"): // it went on to its first activity
			case !errors.As(err, &app), app.Type() != activities.InvalidInput:
				t.Fatalf("%s %s as %s: %v", workflowType, data, id, err)
			}
		}
	})
}

// TestOddSignals: whatever a person sends to a job or to its keeper, known by name or not, readable or not, both go on.
func TestOddSignals(t *testing.T) {
	t.Parallel()
	odd := []any{
		nil,
		map[string]any{"state": "Revoked"},
		map[string]any{"state": "Granted", "runID": "somebody else's", "token": 99},
		// After the last one that can be read come those that cannot.
		7,
		[]string{"a"},
		map[string]any{"state": 7},
		"garbage",
	}
	bother := func(s *scene, id string, names ...string) {
		for _, name := range names {
			for _, arg := range odd {
				s.signal(id, name, arg)
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
	refs := []any{
		workflows.LeaseRef{},
		workflows.LeaseRef{WorkflowID: "somebody", RunID: "1"},
		workflows.LeaseRef{WorkflowID: "drain/" + strings.Repeat("x", 2000), RunID: "1"},
		workflows.LeaseRef{WorkflowID: "drain/node-a", RunID: "another run"},
	}
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		keeper := workflows.KeeperID(sim.Key)
		run := s.drain(drainOf("node-a"))
		for _, phase := range []string{awaitingNode, healing} {
			s.awaitPhase("node-a", phase, 30*time.Second)
			bother(s, keeper, workflows.SignalStorageChanged, workflows.SignalFinishLease, workflows.SignalReleaseLease,
				"no-such-signal")
			for _, ref := range refs {
				s.signal(keeper, workflows.SignalFinishLease, ref)
				s.signal(keeper, workflows.SignalReleaseLease, ref)
			}
			time.Sleep(time.Second)
			// and nobody says anything sensible after it
			bother(s, "drain/node-a", "no-such-signal", jobs.SignalResume, workflows.SignalLease)
			time.Sleep(time.Second)
			require.Equal(s, phase, s.drainStatus("node-a").Phase)
			require.Empty(s, s.keeperStatus().Trouble)
			require.Len(s, s.keeperStatus().Lease.Holders, 1)
			require.Contains(s, []string{only("x"), "closed"}, s.Budget(),
				"closed while the mons elect, and a manager is missing")
			if phase == awaitingNode {
				s.StopManager(true) // so that it never becomes clean
				s.tellDrain("node-a", jobs.SignalDone)
			}
		}
		s.StopManager(false)
		require.Equal(s, workflows.OutcomeDone, s.awaitEnd("node-a", run, 2*time.Minute).result.Outcome)
		s.awaitNothingLeft(0)
	})
}

// TestOddSignalsOfAFence: whatever is said to a fence that waits, nothing is released by it, and it goes on.
func TestOddSignalsOfAFence(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		const node = "node-e"
		id, keeper := jobs.FenceNode.ID(node), workflows.KeeperID(sim.Key)
		s.fenced()
		s.drain(drainOf("node-a"))
		s.awaitPhase("node-a", awaitingNode, 30*time.Second)
		s.machines.Delete(node)
		run := s.fence(node)
		require.True(s, s.Await(time.Minute, func() bool { return s.fenceStatus(node).Phase == workflows.PhaseHeld }))
		for _, arg := range []any{
			nil, 7, "garbage",
			[]string{"a"},
			map[string]any{"by": 7},
			map[string]any{"by": "ann"},
			map[string]any{"by": "ann", "reason": 7},
			map[string]any{"reason": "it burns"},
			map[string]any{"stage": "Released", "runID": run},
			workflows.FenceNotice{Cluster: storage.ClusterKey{Namespace: "no", Name: "body"}, Stage: fencing.StageReleased},
			workflows.FenceRef{WorkflowID: id, RunID: "another run", Drop: true},
			workflows.FenceRef{WorkflowID: "fence/x"},
		} {
			for _, name := range []string{workflows.SignalFenceRelease, workflows.SignalFence, "no-such-signal"} {
				s.signal(id, name, arg)
			}
			s.signal(keeper, workflows.SignalEndFence, arg)
			time.Sleep(time.Second)
		}
		require.Len(s, s.machines.Held(), 6)
		require.Equal(s, workflows.PhaseHeld, s.fenceStatus(node).Phase)
		require.Nil(s, s.fenceStatus(node).Override)
		s.tellDrain("node-a", jobs.SignalDone)
		require.Equal(s, workflows.OutcomeGone, s.awaitFence(node, run).fence.Outcome)
		s.heldAgain()
		s.awaitNothingLeft(time.Minute)
	})
}

// TestOddNoticeThenAbort: a job that waits in the queue, and was told something that nobody can read, still hears
// `abort`.
func TestOddNoticeThenAbort(t *testing.T) {
	t.Parallel()
	play(t, sim.Options{}, func(s *scene) {
		s.settle()
		first := s.drain(drainOf("node-a"))
		s.awaitPhase("node-a", awaitingNode, 30*time.Second)
		second := s.drain(drainOf("node-c"))
		s.awaitPhase("node-c", acquiringLease, 30*time.Second)
		time.Sleep(time.Second)
		s.signal("drain/node-c", workflows.SignalLease, "garbage")
		time.Sleep(time.Second)
		s.tellDrain("node-c", jobs.SignalAbort)
		require.Equal(s, workflows.OutcomeAborted, s.awaitEnd("node-c", second, 10*time.Second).result.Outcome)
		s.tellDrain("node-a", jobs.SignalDone)
		s.awaitEnd("node-a", first, 2*time.Minute)
		s.awaitNothingLeft(0)
	})
}
