package storageview_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
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

// TestHosting: daemons by node, and whether they are in several failure domains.
func TestHosting(t *testing.T) {
	for domain, spread := range map[string]bool{"zone": false, "host": false, "osd": true} {
		w := newWorld(size{zones: 3, hosts: 1, osds: 2})
		w.spreadOver(domain)
		w.osd(0).Up = false
		w.input.Tree = failuredomain.NewTree(w.crush)
		hosted, homeless := storageview.Hosting(w.input)
		require.False(t, homeless)
		require.Equal(t, map[string]fencing.Hosted{
			"node-0": {Daemons: 2, Running: 1, Spread: spread},
			"node-1": {Daemons: 2, Running: 2, Spread: spread},
			"node-2": {Daemons: 2, Running: 2, Spread: spread},
		}, hosted, domain)
	}
}
