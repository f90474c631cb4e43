package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
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

// TestWellAtTheFirstLookAfterItsRelease: a node that was started again before the job heard of the release, and looked
// at first after that, is back.
func TestWellAtTheFirstLookAfterItsRelease(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterActivity(&activities.Fence{})
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "fence/node-a"})
	cluster := storage.ClusterKey{Namespace: "rook-ceph", Name: "rook-ceph"}
	lost := fencing.Patient{
		Machine: fencing.Machine{Name: "m", UID: "u", Held: true}, Found: true, BootID: "1", UID: "n", Unhealthy: env.Now(),
	}
	well := lost
	well.Machine.Held, well.Ready, well.BootID, well.Unhealthy = false, true, "2", time.Time{}
	env.OnActivity(fencingNode.ExamineNode, mock.Anything, mock.Anything).
		Return(activities.Examination{Patient: well}, nil)
	env.OnSignalExternalWorkflow(mock.Anything, mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(nil)
	env.RegisterDelayedCallback(func() {
		env.SignalWorkflow(SignalFence, FenceNotice{Cluster: cluster, Stage: fencing.StageOver})
	}, time.Minute)
	env.ExecuteWorkflow(FenceNode, FenceNodeInput{Node: "node-a", State: &FenceState{
		Patient: lost, Why: fencing.WhyUnhealthy, WhySince: lost.Unhealthy, Stale: true,
		Clusters: []FenceStanding{{Cluster: cluster, Asked: true, Stage: fencing.StageReleased}},
	}})
	require.NoError(t, env.GetWorkflowError())
	var result FenceNodeResult
	require.NoError(t, env.GetWorkflowResult(&result))
	assert.Equal(t, OutcomeDone, result.Outcome)
	assert.Less(t, result.Took, 5*time.Minute)
}
