package workflows

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/doubt"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/unhurried"
)

// TestClosesBeforeItsFirstLook: somebody deleted a budget in the moment in which the keeper continued as new. The next
// run closes although it has not looked yet, and cannot; but not where the budgets are not lockkeeper's to write.
func TestClosesBeforeItsFirstLook(t *testing.T) {
	t.Parallel()
	zone := storage.FailureDomain{Type: "zone", Name: "x"}
	open := budget.Decision{
		Mode: budget.ModeOpen, Open: zone,
		Budget: budget.Spec{MinAvailable: budget.Everything, Key: "zone", Except: []string{"x"}},
	}
	for name, manages := range map[string]bool{"its own": true, "somebody else's": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &mind{
				cluster: storage.ClusterKey{Namespace: "storage", Name: "main"},
				state:   KeeperState{Decision: open, Applied: &open, Manages: manages},
			}
			m.doubt(time.Unix(1, 0), doubt.Tampered, "somebody deleted a budget of lockkeeper")
			var suite testsuite.WorkflowTestSuite
			env := unhurried.Environment(&suite)
			env.RegisterWorkflow(Keeper)
			env.RegisterActivity(&activities.Keeper{})
			wrote := 0
			env.OnActivity(keeping.GuardPods, mock.Anything, mock.Anything).Return(
				func(_ context.Context, in activities.BudgetInput) (activities.BudgetResult, error) {
					require.False(t, in.LetsGo())
					wrote++
					return activities.BudgetResult{}, nil
				})
			env.OnActivity(keeping.ObserveStorage, mock.Anything, mock.Anything).
				Return(activities.Observation{}, errors.New("the API server does not answer"))
			env.OnActivity(keeping.WatchStorage, mock.Anything, mock.Anything).
				Return(activities.Watched{}, errors.New("nobody watches"))
			env.OnActivity(keeping.CarryOut, mock.Anything, mock.Anything).Return(activities.CarryResult{}, nil)
			env.OnActivity(keeping.ReportStatus, mock.Anything, mock.Anything).Return(struct{}{}, nil)
			env.RegisterDelayedCallback(env.CancelWorkflow, 10*time.Second)
			env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: KeeperID(m.cluster), TaskQueue: TaskQueue})
			env.ExecuteWorkflow(Keeper, KeeperInput{Cluster: m.cluster, State: m.handOn(), Protocol: keeperProtocol})
			require.ErrorContains(t, env.GetWorkflowError(), "canceled")
			require.Equal(t, manages, wrote > 0)
		})
	}
}
