package storageview_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
)

// TestHostingByPods: while Ceph is silent every pod of an OSD or a mon that is on a node may serve.
func TestHostingByPods(t *testing.T) {
	require.Equal(t, map[string]fencing.Hosted{
		"node-a": {Daemons: 2, Running: 2, Mon: 1}, "node-b": {Daemons: 1, Running: 1}, "node-c": {Mon: 1},
	}, storageview.HostingByPods([]storageview.Pod{
		{OSD: 0, Node: "node-a"},
		{OSD: 1, Node: "node-a"},
		{OSD: 2, Node: "node-b"},
		{OSD: 3},
		{OSD: storageview.NoOSD, Node: "node-d"},
	}, []storageview.MonPod{{Mon: "a", Node: "node-a"}, {Mon: "b", Node: "node-c"}, {Mon: "c"}, {Node: "node-d"}}))
}
