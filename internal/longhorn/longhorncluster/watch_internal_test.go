package longhorncluster

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/longhorn"
)

// TestOpens: the watch tells of nodes that may leave when they could not before, and not again.
func TestOpens(t *testing.T) {
	decision := func(states ...longhorn.State) (d longhorn.Decision) {
		for i, s := range states {
			d.Nodes = append(d.Nodes, longhorn.NodeVerdict{Node: string(rune('a' + i)), State: s})
		}
		return d
	}
	known := known{decision: decision(longhorn.Kept, longhorn.Spare, longhorn.Open)}
	for want, now := range map[string]longhorn.Decision{
		"":        decision(longhorn.Spare, longhorn.Kept, longhorn.Open),
		"a":       decision(longhorn.Open, longhorn.Spare, longhorn.Kept),
		"a, b, d": decision(longhorn.Open, longhorn.Open, longhorn.Open, longhorn.Open),
	} {
		require.Equal(t, want, sight{decision: now}.opens(known))
	}
}
