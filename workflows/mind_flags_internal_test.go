package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/flags"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// TestFlagsOfThePolicyBefore: a policy was deleted, and another one of its name is of a kind that has no flags. What is
// left of the first one is told by its name.
func TestFlagsOfThePolicyBefore(t *testing.T) {
	for _, kind := range []storage.Kind{"", storage.Ceph, ToyKind} {
		m := &mind{}
		m.state.Kind = kind
		m.state.Memory.Flags = []flags.Record{{Host: "node-a"}, {Host: "node-b"}}
		m.state.Memory.Claim.ID = "4711"
		m.abandonFlags(time.Now())
		require.Len(t, m.news, 1, kind)
		require.Equal(t, "noout may be left in the Ceph cluster with the ID 4711, which this policy no longer means. "+
			"There: ceph osd unset-group noout node-a node-b", m.news[0].Message, kind)
		require.Empty(t, m.state.Memory.Flags, kind)
	}
}
