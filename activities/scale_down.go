package activities

import (
	"context"

	"github.com/lockkeeper/lockkeeper/internal/leaving"
)

// ScaleDown holds the activities of ScaleDownNode.
type ScaleDown struct {
	Nodes Nodes
}

// AwaitSignsInput names a node, and how it was seen last.
type AwaitSignsInput struct {
	Node string        `json:"node"`
	Last leaving.Sight `json:"last"`
}

// AwaitSigns returns when the node is another one, or shows other signs of its leaving, than it was seen last. What
// time alone changes is not for it to tell.
func (d *ScaleDown) AwaitSigns(ctx context.Context, in AwaitSignsInput) (leaving.Sight, error) {
	ctx, stop := untilWorkerStops(ctx)
	defer stop()
	go beat(ctx)
	n, err := d.Nodes.AwaitNode(ctx, in.Node, func(n NodeState) bool { return n.Sight() != in.Last })
	if err != nil {
		return leaving.Sight{}, Unavailable("watch node "+in.Node, err)
	}
	return n.Sight(), nil
}

// Sight is the node as far as its leaving goes.
func (n NodeState) Sight() leaving.Sight {
	return leaving.Sight{Found: n.Found, UID: n.UID, Signs: n.Leaving}
}
