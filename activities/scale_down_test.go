package activities_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
)

// changingNode has one state after the other.
type changingNode struct {
	activities.Nodes
	states []activities.NodeState
}

func (n *changingNode) AwaitNode(
	_ context.Context, _ string, until func(activities.NodeState) bool,
) (activities.NodeState, error) {
	for _, s := range n.states {
		if until(s) {
			return s, nil
		}
	}
	return activities.NodeState{}, errors.New("nothing changes any more")
}

// TestAwaitSigns: what does not concern a node's leaving is passed over, and what has changed already is told at once.
func TestAwaitSigns(t *testing.T) {
	serves := activities.NodeState{Found: true, UID: "1", Ready: true}
	lost, cordoned, another := serves, serves, serves
	lost.Ready, another.UID = false, "2"
	cordoned.Leaving.Cordoned = true
	for name, c := range map[string]struct {
		last   leaving.Sight
		states []activities.NodeState
		want   leaving.Sight
	}{
		"at once":      {leaving.Sight{}, []activities.NodeState{serves}, serves.Sight()},
		"a sign":       {serves.Sight(), []activities.NodeState{serves, lost, cordoned}, cordoned.Sight()},
		"another node": {serves.Sight(), []activities.NodeState{serves, another}, another.Sight()},
		"deleted":      {cordoned.Sight(), []activities.NodeState{cordoned, {}}, leaving.Sight{}},
	} {
		t.Run(name, func(t *testing.T) {
			env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
			a := &activities.ScaleDown{Nodes: &changingNode{states: c.states}}
			env.RegisterActivity(a)
			v, err := env.ExecuteActivity(a.AwaitSigns, activities.AwaitSignsInput{Node: "node-a", Last: c.last})
			require.NoError(t, err)
			var got leaving.Sight
			require.NoError(t, v.Get(&got))
			assert.Equal(t, c.want, got)
		})
	}
}
