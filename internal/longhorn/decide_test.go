package longhorn_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/longhorn"
)

// TestDecide is the table of what Longhorn's issues asked for, and of what it does itself. want has a word for each
// node: its state and reason.
func TestDecide(t *testing.T) {
	abc := func() *world { return newWorld("a", "b", "c") }
	never := func(w *world) { w.replica("v", "a").Healthy = false }
	evicted := func(node string) func(*world) { return func(w *world) { w.replica("v", node).Evicted = true } }
	rebuilding := func(node string) func(*world) {
		return func(w *world) {
			r := w.replica("v", node)
			r.Healthy, r.Current = false, longhorn.Running
		}
	}
	policy := func(p longhorn.DrainPolicy) func(*world) { return func(w *world) { w.Settings.DrainPolicy = p } }
	off := func(w *world) { w.Settings.ClusterAutoscaler = false }
	for name, c := range map[string]struct {
		world *world
		want  string
	}{
		"nothing": {abc(), "a:Spare/NothingToLose b:Spare/NothingToLose c:Spare/NothingToLose"},
		"attached: engine and replicas stay": {
			abc().volume("v", "a", "b").attach("v", "c"), "a:Kept/ReplicaInUse b:Kept/ReplicaInUse c:Kept/EngineRunning",
		},
		"detached: one keeps it": {
			abc().volume("v", "a", "b").volume("w", "b", "c"), "a:Spare/NothingToLose b:Kept/Cover c:Spare/NothingToLose",
		},
		"the cover stays where it was": {
			abc().volume("v", "a", "b", "c").with(func(w *world) { w.Kept = []string{"c"} }),
			"a:Spare/NothingToLose b:Spare/NothingToLose c:Kept/Cover",
		},
		"what is not to be removed anyway keeps it": {
			abc().volume("v", "a", "b", "c").with(func(w *world) { w.Kept, w.node("b").Pinned = []string{"c"}, true }),
			"a:Spare/NothingToLose b:Kept/Cover c:Spare/NothingToLose",
		},
		"unless it is leaving all the same": {
			abc().volume("v", "a", "b", "c").cordon("b").with(func(w *world) { w.node("b").Pinned = true }),
			"a:Kept/Cover b:Open/NothingToLose c:Spare/NothingToLose",
		},
		"unless it can be smaller": {
			abc().volume("v", "a", "b").volume("w", "b", "c").with(func(w *world) { w.Kept = []string{"a", "c"} }),
			"a:Spare/NothingToLose b:Kept/Cover c:Spare/NothingToLose",
		},
		"the last replica stays (1631, 4238)": {
			abc().volume("v", "a").cordon("a"), "a:Kept/LastReplica b:Spare/NothingToLose c:Spare/NothingToLose",
		},
		"never attached (2673)": {
			abc().volume("v", "a").with(never).cordon("a"),
			"a:Open/NothingToLose b:Spare/NothingToLose c:Spare/NothingToLose",
		},
		"a dead node protects nothing (2237)": {
			abc().volume("v", "a", "b").cordon("a").with(func(w *world) { w.node("b").Ready = false }),
			"a:Kept/LastReplica b:Kept/LastReplica c:Spare/NothingToLose",
		},
		"a deleted node protects nothing (10833)": {
			abc().volume("v", "a", "z").cordon("a"),
			"a:Kept/LastReplica b:Spare/NothingToLose c:Spare/NothingToLose z:Kept/LastReplica",
		},
		"an instance manager that is down protects nothing": {
			abc().volume("v", "a", "b").cordon("a").with(func(w *world) { w.manager("b").State = "error" }),
			"a:Kept/LastReplica b:Kept/LastReplica c:Spare/NothingToLose",
		},
		"a failed replica is not the last": {
			abc().volume("v", "a", "b").cordon("a").with(func(w *world) { w.replica("v", "b").Failed = true }),
			"a:Kept/LastReplica b:Kept/LastReplica c:Spare/NothingToLose",
		},
		"a replica that is evicted is not one to live on": {
			abc().volume("v", "a", "b").with(evicted("b")), "a:Kept/Cover b:Spare/NothingToLose c:Spare/NothingToLose",
		},
		"unless there is no other: Longhorn leaves it then": {
			abc().volume("v", "a", "b").cordon("a").with(evicted("b")),
			"a:Open/NothingToLose b:Kept/Cover c:Spare/NothingToLose",
		},
		"what it is rebuilt as will be the last": {
			abc().volume("v", "a", "b").cordon("b").with(evicted("a")).with(rebuilding("b")),
			"a:Kept/Cover b:Kept/Rebuilding c:Spare/NothingToLose",
		},
		"though it does not run yet": {
			abc().volume("v", "a", "b").cordon("b").with(evicted("a")).with(rebuilding("b")).with(func(w *world) {
				w.replica("v", "b").Current = "stopped"
			}),
			"a:Kept/Cover b:Kept/Rebuilding c:Spare/NothingToLose",
		},
		"unless it lives elsewhere, too": {
			abc().volume("v", "a", "b", "c").cordon("b").with(evicted("a")).with(rebuilding("b")),
			"a:Spare/NothingToLose b:Open/NothingToLose c:Kept/Cover",
		},
		"a rebuild of what is not evicted may be broken off": {
			abc().volume("v", "a", "b").cordon("b").with(rebuilding("b")),
			"a:Kept/Cover b:Open/NothingToLose c:Spare/NothingToLose",
		},
		"a failed replica may be all that can be salvaged": {
			abc().volume("v", "a").cordon("a").with(func(w *world) {
				w.replica("v", "a").Healthy, w.replica("v", "a").Failed = false, true
			}), "a:Kept/LastReplica b:Spare/NothingToLose c:Spare/NothingToLose",
		},
		"a drain beside a healthy one": {
			abc().volume("v", "a", "b").cordon("a"), "a:Open/NothingToLose b:Kept/Cover c:Spare/NothingToLose",
		},
		"a drain of a replica in use": {
			abc().volume("v", "a", "b").attach("v", "c").cordon("a"),
			"a:Open/NothingToLose b:Kept/ReplicaInUse c:Kept/EngineRunning",
		},
		"an engine stays whatever the policy is": {
			abc().volume("v", "a", "b").attach("v", "a").cordon("a").with(policy(longhorn.AlwaysAllow)),
			"a:Kept/EngineRunning b:Spare/NothingToLose c:Spare/NothingToLose",
		},
		"also one of which nobody knows the volume (6552)": {
			abc().cordon("a").with(func(w *world) { w.manager("a").Engines = []string{"ghost-e-0"} }),
			"a:Kept/EngineRunning b:Spare/NothingToLose c:Spare/NothingToLose",
		},
		"three nodes of one volume in one second": {
			abc().volume("v", "a", "b", "c").taint("a", "b", "c"), "a:Kept/LastReplica b:Kept/LastReplica c:Kept/LastReplica",
		},
		"two of three": {
			abc().volume("v", "a", "b", "c").taint("a", "b"), "a:Open/NothingToLose b:Kept/SharesVolume c:Kept/Cover",
		},
		"who was allowed before goes first": {
			abc().volume("v", "a", "b", "c").taint("a", "b").with(func(w *world) { w.Going = []string{"b"} }),
			"a:Kept/SharesVolume b:Open/NothingToLose c:Kept/Cover",
		},
		"and then the queue": {
			newWorld("a", "b", "c", "d").volume("v", "a", "b", "c", "d").taint("a", "b", "c").with(func(w *world) {
				w.Going = []string{"c", "b"}
			}), "a:Kept/SharesVolume b:Kept/SharesVolume c:Open/NothingToLose d:Kept/Cover",
		},
		"unrelated nodes go side by side": {
			newWorld("a", "b", "c", "d").volume("v", "a", "c").volume("w", "b", "d").taint("a", "b"),
			"a:Open/NothingToLose b:Open/NothingToLose c:Kept/Cover d:Kept/Cover",
		},
		"an expired taint does not count": {
			abc().volume("v", "a", "b").taint("a").with(func(w *world) {
				w.node("a").RemovalTaint = fmt.Sprint(now.Add(-time.Hour).Unix())
			}), "a:Kept/Cover b:Spare/NothingToLose c:Spare/NothingToLose",
		},
		"a taint without a time does": {
			abc().volume("v", "a", "b").taint("a").with(func(w *world) { w.node("a").RemovalTaint = "soon" }),
			"a:Open/NothingToLose b:Kept/Cover c:Spare/NothingToLose",
		},
		"Karpenter": {
			abc().volume("v", "a", "b").with(func(w *world) { w.node("a").Disrupted = true }),
			"a:Open/NothingToLose b:Kept/Cover c:Spare/NothingToLose",
		},
		"without the setting all stay, and taints do not open": {
			abc().volume("v", "a", "b").with(off).taint("a"), "a:Kept/AutoscalerOff b:Kept/AutoscalerOff c:Kept/AutoscalerOff",
		},
		"without the setting a tainted node protects nothing": {
			abc().volume("v", "a", "b").with(off).taint("a").cordon("b"),
			"a:Kept/AutoscalerOff b:Kept/LastReplica c:Kept/AutoscalerOff",
		},
		"without the setting a cordon opens": {
			abc().volume("v", "a", "b").with(off).cordon("a"), "a:Open/NothingToLose b:Kept/AutoscalerOff c:Kept/AutoscalerOff",
		},
		"block-for-eviction": {
			abc().volume("v", "a", "b").with(policy(longhorn.BlockForEviction)).cordon("a"),
			"a:Kept/ReplicaOnNode b:Kept/ReplicaOnNode c:Spare/NothingToLose",
		},
		"allow-if-replica-is-stopped: a drain": {
			abc().volume("v", "a").with(policy(longhorn.AllowIfReplicaIsStopped)).cordon("a"),
			"a:Open/ReplicaStopped b:Spare/NothingToLose c:Spare/NothingToLose",
		},
		"allow-if-replica-is-stopped: a removal would take the data": {
			abc().volume("v", "a").with(policy(longhorn.AllowIfReplicaIsStopped)).taint("a"),
			"a:Kept/LastReplica b:Spare/NothingToLose c:Spare/NothingToLose",
		},
		"allow-if-replica-is-stopped: so would one of which Longhorn is not to know": {
			abc().volume("v", "a").with(off).with(policy(longhorn.AllowIfReplicaIsStopped)).cordon("a").taint("a"),
			"a:Kept/LastReplica b:Kept/AutoscalerOff c:Kept/AutoscalerOff",
		},
		"always-allow is the user's word": {
			abc().volume("v", "a").with(policy(longhorn.AlwaysAllow)).cordon("a"),
			"a:Open/UserAllows b:Spare/NothingToLose c:Spare/NothingToLose",
		},
		"an unknown policy is the strictest": {
			abc().volume("v", "a", "b").with(policy("block-sometimes")).cordon("a"),
			"a:Kept/ReplicaOnNode b:Kept/ReplicaOnNode c:Spare/NothingToLose",
		},
		"a backing image: not removed": {
			abc().with(func(w *world) { w.node("a").Helpers = []string{"backing-image-manager-1"} }).taint("a"),
			"a:Kept/Helper b:Spare/NothingToLose c:Spare/NothingToLose",
		},
		"a backing image: drained": {
			abc().with(func(w *world) { w.node("a").Helpers = []string{"backing-image-manager-1"} }).cordon("a"),
			"a:Open/NothingToLose b:Spare/NothingToLose c:Spare/NothingToLose",
		},
		"what cannot be read": {
			abc().cordon("a", "b").with(func(w *world) {
				w.Faults = []longhorn.Fault{{Object: "Replica r", Field: "spec.volumeName", Allowed: "a volume", Node: "a"}}
			}), "a:Kept/Malformed b:Open/NothingToLose c:Spare/NothingToLose",
		},
		"an instance manager of an unknown kind": {
			abc().cordon("a").with(func(w *world) { w.manager("a").Kind = "sharded" }),
			"a:Kept/Malformed b:Spare/NothingToLose c:Spare/NothingToLose",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, n := range longhorn.Decide(c.world.World).Nodes {
				got = append(got, fmt.Sprintf("%s:%s/%s", n.Node, n.State, n.Reason))
			}
			require.Equal(t, c.want, strings.Join(got, " "))
		})
	}
}

// TestManagers: what a manager's own state and kind add to the answer of its node.
func TestManagers(t *testing.T) {
	w := newWorld("a", "b").volume("v", "a", "b").cordon("a")
	w.Managers = append(w.Managers,
		longhorn.Manager{Name: "e-a", Node: "a", Kind: longhorn.Engine, State: longhorn.Running},
		longhorn.Manager{Name: "e-b", Node: "b", Kind: longhorn.Engine, State: longhorn.Running},
		longhorn.Manager{Name: "old-b", Node: "b", Kind: longhorn.Replicas, State: "stopped"},
		longhorn.Manager{Name: "lost", Node: "z", Kind: longhorn.Replicas, State: "unknown"},
		longhorn.Manager{Name: "nowhere", Kind: longhorn.Replicas, State: "unknown"})
	var got []string
	for _, m := range longhorn.Decide(w.World).Managers {
		got = append(got, fmt.Sprintf("%s:%s/%s", m.Manager, m.State, m.Reason))
	}
	require.Equal(t, []string{
		"e-a:Open/NothingToLose", "e-b:Spare/NoEngine", "im-a:Open/NothingToLose", "im-b:Kept/Cover", "lost:Kept/NotRunning",
		"nowhere:Kept/Malformed", "old-b:Kept/NotRunning",
	}, got)
}

// TestStay: autoscalers are held back from nodes that must not go, and not from one that only waits for its turn.
func TestStay(t *testing.T) {
	w := newWorld("a", "b", "c", "d").volume("v", "a", "b", "c").taint("a", "b")
	w.node("d").Helpers = []string{"share-manager-1"}
	d := longhorn.Decide(w.World)
	for node, want := range map[string]bool{"a": false, "b": false, "c": true, "d": true} {
		require.Equal(t, want, nodeIn(d, node).Stay, node)
	}
	require.Equal(t, []string{"b"}, nodeIn(d, "a").Conflicts)
	require.False(t, d.OneMore)
	w.Settings.ClusterAutoscaler = false
	for _, n := range longhorn.Decide(w.World).Nodes {
		require.False(t, n.Stay, n.Node)
	}
}

// TestEvict: where the policy says so, replicas that would keep a node which is removed are moved to other nodes, and
// who leaves gets no more. want has a word for each node: its reason and what Longhorn is told.
func TestEvict(t *testing.T) {
	abc := func() *world {
		return newWorld("a", "b", "c").with(func(w *world) { w.EvictOnRemoval = true })
	}
	evicted := func(node string) func(*world) { return func(w *world) { w.replica("v", node).Evicted = true } }
	strictest := func(w *world) { w.Settings.DrainPolicy = longhorn.BlockForEviction }
	for name, c := range map[string]struct {
		world *world
		want  string
		more  bool
	}{
		"nobody leaves": {abc().volume("v", "a"), "a:Cover/ b:NothingToLose/ c:NothingToLose/", true},
		"the last replica": {
			abc().volume("v", "a").taint("a"), "a:Evicting/Evicted b:NothingToLose/ c:NothingToLose/", false,
		},
		"not for a drain": {
			abc().volume("v", "a").cordon("a"), "a:LastReplica/Closed b:NothingToLose/ c:NothingToLose/", true,
		},
		"one of two, removed": {
			abc().volume("v", "a", "b").taint("a"), "a:NothingToLose/Closed b:Cover/ c:NothingToLose/", false,
		},
		"both are removed": {
			abc().volume("v", "a", "b").taint("a", "b"), "a:Evicting/Evicted b:Evicting/Evicted c:NothingToLose/", false,
		},
		"who else leaves gets none of them": {
			abc().volume("v", "a").taint("a", "b"), "a:Evicting/Evicted b:NothingToLose/Closed c:NothingToLose/", false,
		},
		"it goes on while another copy is whole": {
			abc().volume("v", "a", "b").taint("a").with(evicted("a")),
			"a:NothingToLose/Evicted b:Cover/ c:NothingToLose/", false,
		},
		"what is made already where it may come": {
			abc().volume("v", "a", "b").taint("a", "b").with(func(w *world) { w.replica("v", "b").Healthy = false }),
			"a:Evicting/Evicted b:Rebuilding/Closed c:NothingToLose/", false,
		},
		"an engine first": {
			abc().volume("v", "a").attach("v", "a").taint("a"), "a:EngineRunning/Closed b:NothingToLose/ c:NothingToLose/", true,
		},
		"block-for-eviction: all of them": {
			abc().volume("v", "a", "b").taint("a").with(strictest),
			"a:Evicting/Evicted b:ReplicaOnNode/ c:NothingToLose/", false,
		},
		"Longhorn's setting is off": {
			abc().volume("v", "a").taint("a").with(func(w *world) { w.Settings.ClusterAutoscaler = false }),
			"a:AutoscalerOff/ b:AutoscalerOff/ c:AutoscalerOff/", true,
		},
	} {
		d := longhorn.Decide(c.world.World)
		var got []string
		for _, n := range d.Nodes {
			got = append(got, fmt.Sprintf("%s:%s/%s", n.Node, n.Reason, n.Evict))
		}
		require.Equal(t, c.want, strings.Join(got, " "), name)
		require.Equal(t, c.more, d.OneMore, name)
	}
	d := longhorn.Decide(abc().volume("v", "a").World)
	require.False(t, nodeIn(d, "a").Stay, "an autoscaler may choose it: what it keeps will be moved")
	d = longhorn.Decide(abc().volume("v", "a").taint("a").World)
	require.False(t, nodeIn(d, "a").Stay)
	d = longhorn.Decide(abc().volume("v", "a").attach("v", "b").World)
	require.True(t, nodeIn(d, "a").Stay, "it is in use")
}

func TestExplain(t *testing.T) {
	w := newWorld("a", "b", "c").volume("v", "a").volume("w", "a", "b").cordon("a")
	said, ok := longhorn.Decide(w.World).Explain("a")
	require.True(t, ok)
	require.Equal(t, []string{
		"node a, which is cordoned: must stay",
		"volume v has its last healthy replica here: attach it elsewhere, which makes another one, or have it evicted from " +
			"this node",
		"autoscalers are to be held back from it",
	}, said)
	_, ok = longhorn.Decide(w.World).Explain("nowhere")
	require.False(t, ok)
}

// TestFaultsAreNamed: an unknown policy is named with what is allowed.
func TestFaultsAreNamed(t *testing.T) {
	w := newWorld("a")
	w.Settings.DrainPolicy = "sometimes"
	d := longhorn.Decide(w.World)
	require.Len(t, d.Faults, 1)
	require.Equal(t, `Setting node-drain-policy: value: "sometimes": allowed are block-for-eviction, `+
		"block-for-eviction-if-contains-last-replica, block-if-contains-last-replica, allow-if-replica-is-stopped, "+
		"always-allow", d.Faults[0].String())
}

// TestSummaryIsSmall: 500 nodes that all leave, share volumes and have long names still fit.
func TestSummaryIsSmall(t *testing.T) {
	var names []string
	for i := range 500 {
		names = append(names, fmt.Sprintf("ip-10-0-%03d-%s.eu-central-1.compute.internal", i, strings.Repeat("x", 20)))
	}
	w := newWorld(names...).taint(names...)
	for i := range names {
		w.volume(fmt.Sprintf("pvc-%036d", i), names[i], names[(i+1)%500], names[(i+2)%500])
	}
	b, err := json.Marshal(longhorn.Decide(w.World).Summary())
	require.NoError(t, err)
	require.Less(t, len(b), 256<<10)
}
