package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/test/unhurried"
	"github.com/lockkeeper/lockkeeper/worker"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TestBackWithoutTheLease: the lease of a drain from outside is taken away, and the node is back before it has another
// one, while the keeper has other things to do. Being done is told once, and once again when nothing is heard for long.
func TestBackWithoutTheLease(t *testing.T) {
	t.Parallel()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(quiet{})
	env := unhurried.Environment(&suite)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{
		ID:        jobs.DrainNode.ID("node-a"),
		TaskQueue: workflows.TaskQueue,
	})
	worker.Register(env, worker.Adapters{}, nil)

	domain := storage.FailureDomain{Type: "zone", Name: "x"}
	target := activities.Target{
		Hosted: activities.Hosted{Cluster: sim.Key, Domain: domain}, Node: "node-a", UID: "1",
	}
	env.OnActivity("ResolveNode", mock.Anything, mock.Anything).Return(target, nil)
	var ask int64
	env.OnActivity("RequestLease", mock.Anything, mock.Anything).Return(
		func(_ context.Context, in activities.LeaseInput) (struct{}, error) {
			ask = in.Claim.Ask
			return struct{}{}, nil
		})
	var waits []byte
	env.OnActivity("AwaitNode", mock.Anything, mock.Anything).Return(
		func(ctx context.Context, _ activities.AwaitNodeInput) (activities.NodeReturn, error) {
			waits = activity.GetInfo(ctx).TaskToken
			return activities.NodeReturn{}, activity.ErrResultPending
		})
	env.RegisterDelayedCallback(func() { require.NoError(t, env.CompleteActivity(waits, activities.NodeReturn{}, nil)) },
		30*time.Second)
	told := map[string]int{}
	env.OnSignalExternalWorkflow(mock.Anything, workflows.KeeperID(sim.Key), mock.Anything, mock.Anything,
		mock.Anything).Return(
		func(_, _, _, signal string, _ any) error {
			if told[signal]++; told[signal] > 100 {
				panic("the keeper is told " + signal + " without end")
			}
			return nil
		})

	says := func(after time.Duration, state workflows.LeaseState) {
		env.RegisterDelayedCallback(func() {
			env.SignalWorkflow(workflows.SignalLease, workflows.LeaseNotice{State: state, Ask: ask, Token: 7})
		}, after)
	}
	says(time.Second, workflows.LeaseGranted)
	says(2*time.Second, workflows.LeaseRevoked)
	says(3*time.Second, workflows.LeaseWaiting)
	says(40*time.Second, workflows.LeaseHealing)
	says(4*time.Minute, workflows.LeaseReleased)
	env.ExecuteWorkflow(jobs.DrainNode.Type,
		workflows.DrainNodeInput{Node: "node-a", Policy: sim.Key.String(), Observe: true})
	require.NoError(t, env.GetWorkflowError())
	var result workflows.DrainNodeResult
	require.NoError(t, env.GetWorkflowResult(&result))
	require.Equal(t, workflows.OutcomeDone, result.Outcome)
	require.Equal(t, 2, told[workflows.SignalFinishLease], "at once, and two minutes after the last word")
}
