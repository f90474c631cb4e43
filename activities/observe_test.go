package activities_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// hangs is an API server that takes requests, and never answers.
type hangs struct {
	activities.Policies
	activities.Budgets
}

func (hangs) Policy(ctx context.Context, _ storage.ClusterKey) (activities.Policy, error) {
	<-ctx.Done()
	return activities.Policy{}, ctx.Err()
}

func (hangs) ReadBudgets(ctx context.Context, _ storage.ClusterKey) (budget.Book, bool, error) {
	<-ctx.Done()
	return nil, false, ctx.Err()
}

// TestALookThatHangs says who does not answer: that its time is over would be taken for a worker that is away.
func TestALookThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		env.SetTestTimeout(10 * time.Second)
		keeper := &activities.Keeper{Policies: hangs{}, Budgets: hangs{}}
		env.RegisterActivity(keeper)
		_, err := env.ExecuteLocalActivity(keeper.ObserveStorage, activities.ObserveInput{Cluster: carried})
		require.ErrorContains(t, err, "read MaintenancePolicy "+carried.String())
	})
}
