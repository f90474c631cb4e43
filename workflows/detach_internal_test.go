package workflows

import (
	"context"
	"testing"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/unhurried"
)

// TestDetachesInEachCluster: what one storage cluster refuses is told, whatever the next one says.
func TestDetachesInEachCluster(t *testing.T) {
	key := func(name string) storage.ClusterKey { return storage.ClusterKey{Namespace: "storage", Name: name} }
	answers := map[string]activities.Detached{
		"refuses": {Refused: "forbidden"},
		"does":    {Names: []string{"vol-2", "vol-1"}},
		"silent":  {Refused: "no such kind"},
	}
	for name, c := range map[string]struct {
		clusters []string
		want     AttachedByHand
	}{
		"one": {[]string{"does"}, AttachedByHand{Detached: []string{"vol-0", "vol-1", "vol-2"}}},
		"the first": {[]string{"refuses", "does"}, AttachedByHand{
			Detached:    []string{"vol-0", "vol-1", "vol-2"},
			NotDetached: "what was attached to a by hand stays attached: forbidden",
		}},
		"two": {[]string{"refuses", "silent"}, AttachedByHand{
			Detached:    []string{"vol-0"},
			NotDetached: "what was attached to a by hand stays attached: forbidden; no such kind",
		}},
		"not as the policy says": {nil, AttachedByHand{Detached: []string{"vol-0"}}},
	} {
		t.Run(name, func(t *testing.T) {
			var suite testsuite.WorkflowTestSuite
			e := unhurried.Environment(&suite)
			e.RegisterActivity(&activities.Drain{})
			e.OnActivity(draining.DetachByHand, mock.Anything, mock.Anything).Return(
				func(_ context.Context, in activities.DetachInput) (activities.Detached, error) {
					return answers[in.Cluster.Name], nil
				})
			target := activities.Target{Node: "a", Hosted: activities.Hosted{Cluster: key("asks-for-nothing")}}
			for _, cluster := range c.clusters {
				target.Others = append(target.Others, activities.Hosted{Cluster: key(cluster), Detach: true})
			}
			e.ExecuteWorkflow(func(ctx workflow.Context) (AttachedByHand, error) {
				so := AttachedByHand{Detached: []string{"vol-0"}, NotDetached: "of the turn before"}
				err := newJob(ctx, drainPhases, JobState{}).detachByHand(ctx, target, &so)
				return so, err
			})
			require.NoError(t, e.GetWorkflowError())
			var got AttachedByHand
			require.NoError(t, e.GetWorkflowResult(&got))
			require.Equal(t, c.want, got)
		})
	}
}
