package activities

import (
	"context"
	"fmt"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file ends what nobody else ends: attachments that somebody made by hand to a node that is leaving.

// Detacher is a StorageCluster in which something may be attached to nodes by hand.
type Detacher interface {
	// DetachByHand ends all attachments to a node that were made by hand, and returns what is attached by them. It is
	// detached a while later. An answer of no is why it may not be.
	DetachByHand(ctx context.Context, node string) (names []string, a storage.Answer, err error)
}

// DetachInput names a node, which has to be the same one still, and a storage cluster.
type DetachInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Node    string             `json:"node"`
	UID     string             `json:"uid"`
}

// Detached is what was attached by hand, and is to be detached; or why nothing was done.
type Detached struct {
	Names   []string `json:"names,omitempty"`
	Refused string   `json:"refused,omitempty"`
}

// DetachByHand ends the attachments to a node that somebody made by hand. From a node that does not answer nothing is
// detached: nobody knows what it still writes.
func (d *Drain) DetachByHand(ctx context.Context, in DetachInput) (Detached, error) {
	n, err := d.Nodes.Node(ctx, in.Node)
	switch {
	case err != nil:
		return Detached{}, Unavailable("read node "+in.Node, err)
	case n.UID != in.UID:
		return Detached{Refused: fmt.Sprintf("%s is another node than when the job began, or gone", in.Node)}, nil
	case !n.Ready:
		return Detached{Refused: in.Node + " is not ready, and may write to it"}, nil
	}
	what := fmt.Sprintf("detach from %s what was attached by hand in %s", in.Node, in.Cluster)
	c, err := d.Clusters.StorageCluster(ctx, in.Cluster)
	if err != nil {
		return Detached{}, Unavailable(what, err)
	}
	detacher, is := c.(Detacher)
	if !is {
		return Detached{}, nil
	}
	names, a, err := detacher.DetachByHand(ctx, in.Node)
	if err != nil {
		return Detached{}, Unavailable(what, err)
	}
	return Detached{Names: names, Refused: a.Reason}, nil
}
