package temporal

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/starter"
	"github.com/lockkeeper/lockkeeper/test/sim"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// TestKeeperOfAnotherVersion: what a worker of another version did cannot be replayed, so the keeper stands still. The
// watcher learns of it and starts another one, which closes first and then goes on from the policy's status.
func TestKeeperOfAnotherVersion(t *testing.T) {
	s := newStage(t, sim.Options{})
	s.await("rest", func() bool { return s.keeper().Decision.Mode == budget.ModeDefault })
	s.worker.Stop()
	another := sdkworker.New(s.client, workflows.TaskQueue, sdkworker.Options{})
	another.RegisterWorkflowWithOptions(func(ctx workflow.Context, _ workflows.KeeperInput) error {
		return workflow.Sleep(ctx, time.Hour)
	}, workflow.RegisterOptions{Name: jobs.Keeper.Type})
	require.NoError(t, another.Start())
	temporal := starter.NewTemporal(s.client)
	require.NoError(t, temporal.RestartKeeper(t.Context(), sim.Key)) // under the other version
	s.await("its first step", func() bool {
		d, err := s.client.DescribeWorkflowExecution(t.Context(), workflows.KeeperID(sim.Key), "")
		return err == nil && d.GetWorkflowExecutionInfo().GetHistoryLength() >= 5
	})
	another.Stop()
	s.startWorker()
	s.signal(workflows.KeeperID(sim.Key), workflows.SignalStorageChanged, workflows.Hint{Reason: "a test"})
	s.await("that it cannot go on", func() bool {
		_, err := temporal.Kept(t.Context(), sim.Key)
		return errors.Is(err, starter.ErrCannotGoOn)
	})
	require.NoError(t, temporal.RestartKeeper(t.Context(), sim.Key))
	s.await("rest again", func() bool {
		kept, err := temporal.Kept(t.Context(), sim.Key)
		return err == nil && kept.OK && s.keeper().Decision.Mode == budget.ModeDefault
	})
}
