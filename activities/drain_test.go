package activities_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// slowNode is a node whose last pod takes its time to stop.
type slowNode struct {
	activities.Nodes
	gone chan struct{} // closed: nobody tells
	left int
	// refused: a budget keeps it; asked is how often it was looked at.
	refused, asked int
}

func (n *slowNode) Node(context.Context, string) (activities.NodeState, error) {
	return activities.NodeState{Found: true, UID: "uid", Cordoned: true}, nil
}

func (n *slowNode) PodsGone(context.Context, string) (<-chan struct{}, error) { return n.gone, nil }

func (n *slowNode) EvictOnce(context.Context, activities.Eviction) (activities.EvictionProgress, error) {
	n.asked++
	return activities.EvictionProgress{Total: 1, Remaining: n.left, Refused: n.refused}, nil
}

// evict has EvictPods empty the node.
func (n *slowNode) evict(t *testing.T) {
	t.Helper()
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	env.RegisterActivity(&activities.Drain{Nodes: n, Policies: granted{}})
	_, err := env.ExecuteActivity((*activities.Drain)(nil).EvictPods, activities.EvictInput{
		Node: "node-a", UID: "uid", WorkflowID: "drain/node-a", RunID: "run", Token: 1,
	})
	require.NoError(t, err)
}

// granted is a policy whose lease is held.
type granted struct{ activities.Policies }

func (granted) Policy(context.Context, storage.ClusterKey) (activities.Policy, error) {
	var p activities.Policy
	p.Memory.Lease.Holders = []lease.Claim{{WorkflowID: "drain/node-a", RunID: "run", Token: 1}}
	return p, nil
}

// taintedNode is a cordoned node with a taint that drives its pods off.
type taintedNode struct {
	slowNode
	taints []string
}

func (n *taintedNode) Node(context.Context, string) (activities.NodeState, error) {
	return activities.NodeState{Found: true, UID: "uid", Cordoned: true, Ready: true, DrivesOff: n.taints}, nil
}

// TestNobodyIsEvictedForATaintThatIsGone: another taint is none of this drain's.
func TestNobodyIsEvictedForATaintThatIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		taints []string
		ended  string
	}{
		"there":   {[]string{"other", "repair"}, ""},
		"gone":    {nil, "the taint repair is gone"},
		"another": {[]string{"other"}, "the taint repair is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			n := &taintedNode{taints: c.taints}
			env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
			env.RegisterActivity(&activities.Drain{Nodes: n, Policies: granted{}})
			got, err := env.ExecuteActivity((*activities.Drain)(nil).EvictPods, activities.EvictInput{
				Node: "node-a", UID: "uid", WorkflowID: "drain/node-a", RunID: "run", Token: 1, Taint: "repair",
			})
			require.NoError(t, err)
			var p activities.EvictionProgress
			require.NoError(t, got.Get(&p))
			require.Equal(t, c.ended, p.Ended)
			require.Equal(t, c.ended == "", n.asked > 0)
		})
	}
}

// TestNobodyAsksBeforeAPodHasGone: of what only takes its time to stop the watch tells. A budget may let go at any
// time.
func TestNobodyAsksBeforeAPodHasGone(t *testing.T) {
	for refused, most := range map[int]int{0: 2, 1: 10} {
		synctest.Test(t, func(t *testing.T) {
			n := &slowNode{gone: make(chan struct{}, 1), left: 1, refused: refused}
			time.AfterFunc(900*time.Millisecond, func() {
				n.left = 0
				n.gone <- struct{}{}
			})
			n.evict(t)
			assert.LessOrEqual(t, n.asked, most)
			assert.Equal(t, refused > 0, n.asked > 2)
		})
	}
}

func TestThatPodsAreGoneIsNoticedAtOnce(t *testing.T) {
	for name, told := range map[string]bool{"told": true, "not told": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const takes = 30*time.Second + time.Millisecond
				n := &slowNode{gone: make(chan struct{}, 1), left: 1}
				if !told {
					close(n.gone)
				}
				began := time.Now()
				time.AfterFunc(takes, func() {
					if n.left = 0; told {
						n.gone <- struct{}{}
					}
				})
				n.evict(t)
				if late := time.Since(began) - takes; told {
					assert.Zero(t, late)
				} else {
					assert.Positive(t, late)
					assert.LessOrEqual(t, late, time.Second, "it looks by itself")
				}
			})
		})
	}
}
