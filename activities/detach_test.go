package activities_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// attaching is a node, and storage in which something is attached to it by hand.
type attaching struct {
	activities.Nodes
	activities.StorageClusters
	node activities.NodeState
	says storage.Answer
	err  error
	// nothing: it is storage in which nothing is attached to nodes.
	nothing  bool
	detached int
}

func (a *attaching) Node(context.Context, string) (activities.NodeState, error) { return a.node, nil }

func (a *attaching) StorageCluster(context.Context, storage.ClusterKey) (activities.StorageCluster, error) {
	if a.nothing {
		return seen{}, nil
	}
	return withAttachments{attaching: a}, nil
}

type withAttachments struct {
	activities.StorageCluster
	attaching *attaching
}

func (w withAttachments) DetachByHand(context.Context, string) ([]string, storage.Answer, error) {
	a := w.attaching
	a.detached++
	return []string{"vol"}, a.says, a.err
}

func TestDetach(t *testing.T) {
	well := activities.NodeState{Found: true, UID: "uid", Ready: true}
	for name, c := range map[string]struct {
		world    attaching
		want     activities.Detached
		detached int
	}{
		"what is attached": {
			attaching{node: well, says: storage.Answer{OK: true}}, activities.Detached{Names: []string{"vol"}}, 1,
		},
		"without the right": {
			attaching{node: well, says: storage.Answer{Reason: "forbidden"}},
			activities.Detached{Names: []string{"vol"}, Refused: "forbidden"},
			1,
		},
		"a node that is silent": {
			attaching{node: activities.NodeState{Found: true, UID: "uid"}},
			activities.Detached{Refused: "node-a is not ready, and may write to it"},
			0,
		},
		"another node": {
			attaching{node: activities.NodeState{Found: true, UID: "other", Ready: true}},
			activities.Detached{Refused: "node-a is another node than when the job began, or gone"},
			0,
		},
		"no node": {attaching{}, activities.Detached{
			Refused: "node-a is another node than when the job began, or gone",
		}, 0},
		"another kind of storage": {attaching{node: well, nothing: true}, activities.Detached{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := &activities.Drain{Nodes: &c.world, Clusters: &c.world}
			got, err := d.DetachByHand(t.Context(), activities.DetachInput{Cluster: keyA, Node: "node-a", UID: "uid"})
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
			assert.Equal(t, c.detached, c.world.detached)
		})
	}
	d := &attaching{node: well, err: errors.New("no answer")}
	_, err := (&activities.Drain{Nodes: d, Clusters: d}).DetachByHand(t.Context(),
		activities.DetachInput{Cluster: keyA, Node: "node-a", UID: "uid"})
	require.ErrorContains(t, err, "no answer", "and it is asked again")
}
