package storageview_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

var sixNodes = size{zones: 3, hosts: 2, osds: 1}

// TestNothingToSay: of a cluster in order the View tells the numbers only.
func TestNothingToSay(t *testing.T) {
	v := newWorld(sixNodes).view()
	require.Len(t, v.Shape, 12)
	v.Shape = ""
	require.Equal(t, &storage.Marks{Unproved: 6}, v.Marks)
	v.Marks = nil
	require.Equal(t, storage.View{
		At: time.Unix(1000, 0).UTC(), FailureDomainType: "zone", LabelKey: "topology-location-zone", Daemons: 6, Up: 6,
		ChangeEpoch: 10,
	}, v)
}

func TestWhoIsDown(t *testing.T) {
	down := func(up bool, pod storage.PodState) []storage.Daemon {
		downAt := map[bool]int64{false: 21}[up]
		return []storage.Daemon{{Name: "osd.2", Node: "node-2", Up: up, DownAt: downAt, Pod: pod}}
	}
	for name, c := range map[string]struct {
		breakIt func(*world)
		want    []storage.Daemon // in zone-1
		up      int
		down    bool
	}{
		"Ceph says down": {func(w *world) { w.stop(2, 21) }, down(false, storage.PodReady), 5, true},
		"evicted, Ceph has not noticed yet": {
			func(w *world) { w.evict(2); w.node(2).Unschedulable = true },
			down(true, storage.PodPending), 6, true,
		},
		"told to stop": {
			func(w *world) { w.pod(2).State = storage.PodTerminating },
			down(true, storage.PodTerminating), 6, true,
		},
		"unready, but it serves": {
			func(w *world) { w.pod(2).State = storage.PodNotReady },
			down(true, storage.PodNotReady), 6, false,
		},
		"its disk failed": {
			func(w *world) { w.stop(2, 21); w.pod(2).State = storage.PodNotReady },
			down(false, storage.PodNotReady), 5, true,
		},
		"its node is tainted by the autoscaler": {
			func(w *world) { w.stop(2, 21); w.evict(2); w.node(2).RemovalTaint = "karpenter.sh/disrupted" },
			down(false, storage.PodPending), 5, true,
		},
		"its node is gone": {
			func(w *world) { w.stop(2, 21); w.evict(2); w.deleteNode(2) },
			down(false, storage.PodPending), 5, true,
		},
		"its node is not ready, which nobody planned": {
			func(w *world) { w.stop(2, 21); w.node(2).NotReady = true },
			down(false, storage.PodReady), 5, true,
		},
		"down without a pod": {
			func(w *world) { w.deletePod(2); w.stop(2, 21) }, down(false, storage.PodNone), 5,
			true,
		},
		"the old pod goes, the new one waits": {
			func(w *world) {
				w.pod(2).State = storage.PodTerminating
				w.input.Pods = append(w.input.Pods, newPod(2, "node-2", "zone-1"))
				w.input.Pods[6].State = storage.PodPending
			},
			down(true, storage.PodPending), 6, true,
		},
		"the old pod goes, the new one is ready": {
			func(w *world) {
				w.pod(2).State = storage.PodTerminating
				w.input.Pods = append(w.input.Pods, newPod(2, "node-2", "zone-1"))
			},
			nil, 6, false,
		},
		"up without a pod: Ceph alone judges": {func(w *world) { w.deletePod(2) }, nil, 6, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(sixNodes)
			c.breakIt(w)
			v := w.view()
			require.Empty(t, v.Problems)
			require.Equal(t, 6, v.Daemons)
			require.Equal(t, c.up, v.Up)
			require.Equal(t, c.want, v.Domain("zone-1").Troubled)
			require.Equal(t, c.down, len(v.Domain("zone-1").Down()) > 0)
			if c.want == nil {
				require.Empty(t, v.Domains)
				return
			}
			require.Len(t, v.Domains, 1)
			require.Equal(t, []string{"zone-1"}, v.Domain("zone-1").LabelValues)
			require.Equal(t, 2, v.Domain("zone-1").Daemons)
		})
	}
}

func TestWhoCounts(t *testing.T) {
	for name, c := range map[string]struct {
		breakIt func(*world)
		daemons int
		problem string
	}{
		"a new OSD that never came up": {
			func(w *world) {
				w.osd(2).Up, w.osd(2).UpFrom, w.osd(2).State = false, 0, []string{"exists", "new"}
				w.pod(2).State = storage.PodNotReady
			}, 5, "",
		},
		"a new OSD whose pod would be counted by a budget": {
			func(w *world) { w.osd(2).Up, w.osd(2).UpFrom, w.osd(2).State = false, 0, []string{"exists", "new"} },
			5, "ready pods of OSDs that do not serve, which a budget would count as if they did: rook-ceph-osd-2",
		},
		"a destroyed OSD": {
			func(w *world) { w.stop(2, 21); w.osd(2).State = []string{"destroyed", "exists"}; w.deletePod(2) }, 5, "",
		},
		"under replacement, by label": {
			func(w *world) { w.stop(2, 21); w.evict(2); w.pod(2).Labels[storageview.ReplacementKey] = "true" }, 5, "",
		},
		"under replacement, by its Deployment": {
			func(w *world) { w.stop(2, 21); w.evict(2); w.pod(2).Replacing = true }, 5, "",
		},
		"to be replaced, but it still serves": {
			func(w *world) { w.pod(2).Replacing = true }, 6, "",
		},
		"down for weeks": {func(w *world) { w.stop(2, 11); w.osd(2).In = false; w.osd(2).Weight = 0 }, 6, ""},
		"a pod of an OSD that does not exist": {
			func(w *world) { w.input.Pods = append(w.input.Pods, newPod(77, "node-0", "zone-0")) },
			6, "ready pods of OSDs that do not exist: rook-ceph-osd-77",
		},
		"the same pod, not ready": {
			func(w *world) {
				w.input.Pods = append(w.input.Pods, newPod(77, "node-0", "zone-0"))
				w.input.Pods[6].State = storage.PodNotReady
			}, 6, "",
		},
		"two pods of one OSD, both ready": {
			func(w *world) { w.input.Pods = append(w.input.Pods, newPod(2, "node-2", "zone-1")) },
			6, "more than one ready pod, of which one has to go (`lockkeeper restart pod/NAME --now --reason ...`): " +
				"osd.2 (rook-ceph-osd-2, rook-ceph-osd-2)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(sixNodes)
			c.breakIt(w)
			v := w.view()
			require.Equal(t, c.daemons, v.Daemons)
			if c.problem == "" {
				require.Empty(t, v.Problems)
			} else {
				require.Equal(t, []string{c.problem}, v.Problems)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	for name, c := range map[string]struct {
		breakIt func(*world)
		problem string
	}{
		"a pod without the OSD's number": {
			func(w *world) { w.pod(2).OSD = storageview.NoOSD },
			"no label ceph-osd-id with the number of an OSD, though the selector takes them for OSDs: pods rook-ceph-osd-2",
		},
		"pods without the failure domain": {
			func(w *world) {
				for i := range w.input.Pods {
					delete(w.pod(i).Labels, "topology-location-zone")
				}
			},
			"no label topology-location-zone: pods rook-ceph-osd-0, rook-ceph-osd-1, rook-ceph-osd-2, rook-ceph-osd-3, " +
				"rook-ceph-osd-4 and 1 more",
		},
		"a label that contradicts CRUSH": {
			func(w *world) { w.pod(2).Labels["topology-location-zone"] = "zone-2" },
			"label topology-location-zone says zone-2, but CRUSH has the OSD in zone zone-1: pods rook-ceph-osd-2",
		},
		"one label value for two failure domains": {
			func(w *world) {
				w.bucket("zone-0").Name, w.bucket("zone-1").Name = "z.a", "z-a"
				for i := range 4 {
					w.pod(i).Labels["topology-location-zone"] = "z-a"
				}
			},
			"label topology-location-zone is z-a in two failure domains: zones z.a and z-a",
		},
		"an OSD outside of the tree": {
			func(w *world) { w.bucket("node-2").Items = nil },
			"under no root of the CRUSH map: osd.2",
		},
		"an OSD in no zone": {
			func(w *world) { w.bucket("node-2").Items = nil; appendItem(w.bucket("default"), 2) },
			"in no zone of the CRUSH map: osd.2",
		},
		"a node with OSDs of two zones": {
			func(w *world) { w.pod(2).Node = "node-0"; w.pod(3).Node = "node-0" },
			"one node with OSDs of several failure domains (zones zone-0, zone-1): node-0",
		},
		"a rule that cannot be understood": {
			func(w *world) { w.input.Map.Pools[0].Rule = 7 },
			`the failure domain is not known: pool "rbd": its CRUSH rule 7 does not exist`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(sixNodes)
			c.breakIt(w)
			require.Equal(t, []string{c.problem}, w.view().Problems)
		})
	}
}

func TestProblemsStayFew(t *testing.T) {
	w := newWorld(size{zones: 40, hosts: 1, osds: 3})
	for i := range w.input.Pods {
		w.pod(i).Labels["topology-location-zone"] = fmt.Sprintf("wrong-%d", i/3)
	}
	problems := w.view().Problems
	require.Len(t, problems, 21)
	require.Equal(t, "and 20 problems more", problems[20])
}

// TestRookWritesDashesForDots: a node's name has dots, its CRUSH host and the pods' labels have dashes.
func TestRookWritesDashesForDots(t *testing.T) {
	w := newWorld(sixNodes)
	w.spreadOver("host")
	w.node(2).Name, w.pod(2).Node = "node-2.example.org", "node-2.example.org"
	w.bucket("node-2").Name, w.pod(2).Labels["topology-location-host"] = "node-2-example-org", "node-2-example-org"
	w.node(3).Name, w.bucket("node-3").Name = "node-3.example.org", "node-3-example-org"
	w.pod(3).Labels["topology-location-host"] = "node-3-example-org"
	w.deletePod(3) // its node is found by its CRUSH host's name alone
	w.input.Interest = storageview.Interest{
		Domains: []string{"node-2-example-org"},
		Nodes:   []string{"node-2.example.org", "node-3.example.org"},
	}
	v := w.view()
	require.Empty(t, v.Problems)
	require.Equal(t, []storage.Domain{{
		Name: "node-2-example-org", LabelValues: []string{"node-2-example-org"},
		Daemons: 1,
	}}, v.Domains)
	require.Equal(t, []storage.Node{
		{Name: "node-2.example.org", Domain: "node-2-example-org", Host: "node-2-example-org", Daemons: []string{"osd.2"}},
		{Name: "node-3.example.org", Domain: "node-3-example-org", Host: "node-3-example-org", Daemons: []string{"osd.3"}},
	}, v.Nodes)
}

func TestNodes(t *testing.T) {
	w := newWorld(size{zones: 3, hosts: 2, osds: 2})
	w.node(0).Unschedulable = true
	w.node(1).RemovalTaint = "ToBeDeletedByClusterAutoscaler"
	w.node(2).NotReady = true
	w.evict(6)
	w.deleteNode(4)
	w.input.Nodes = append(w.input.Nodes, storageview.Node{Name: "no-osds", Unschedulable: true})
	w.input.Interest.Nodes = []string{"node-5", "no-osds", "nowhere"}
	v := w.view()
	require.Empty(t, v.Problems)
	require.Equal(t, []storage.Node{
		{Name: "node-0", Domain: "zone-0", Host: "node-0", Cordoned: true, Daemons: []string{"osd.0", "osd.1"}},
		{
			Name: "node-1", Domain: "zone-0", Host: "node-1", Tainted: "ToBeDeletedByClusterAutoscaler",
			Daemons: []string{"osd.2", "osd.3"},
		},
		{Name: "node-2", Domain: "zone-1", Host: "node-2", NotReady: true, Lost: 2, Daemons: []string{"osd.4", "osd.5"}},
		{Name: "node-3", Domain: "zone-1", Host: "node-3", Daemons: []string{"osd.6", "osd.7"}, Down: []string{"osd.6"}},
		{Name: "node-4", Domain: "zone-2", Host: "node-4", Gone: true, Daemons: []string{"osd.8", "osd.9"}},
		{Name: "node-5", Domain: "zone-2", Host: "node-5", Daemons: []string{"osd.10", "osd.11"}},
	}, v.Nodes)
}

// TestNodeByHostname: what pins a pod is the label kubernetes.io/hostname, which need not be the node's name.
func TestNodeByHostname(t *testing.T) {
	w := newWorld(sixNodes)
	w.node(2).Name, w.node(2).Hostname = "i-0abc", "node-2"
	w.evict(2)
	v := w.view()
	require.Equal(t, []storage.Node{{
		Name: "i-0abc", Domain: "zone-1", Host: "node-2", Daemons: []string{"osd.2"}, Down: []string{"osd.2"},
	}}, v.Nodes)
	require.Equal(t, "i-0abc", v.Domain("zone-1").Troubled[0].Node)
}

// TestOSDsOnVolumes have a CRUSH host each, and a pod that waits is bound to no node.
func TestOSDsOnVolumes(t *testing.T) {
	w := newWorld(size{zones: 3, hosts: 2, osds: 1})
	w.pod(1).Node = "node-0"
	w.input.Interest.Nodes = []string{"node-0"}
	w.evict(4)
	w.pod(4).Node = ""
	w.bucket("node-4").Name = "set1-data-4"
	v := w.view()
	require.Empty(t, v.Problems)
	require.Equal(t, []storage.Node{{
		Name: "node-0", Domain: "zone-0", Host: "node-0", Hosts: []string{"node-0", "node-1"},
		Daemons: []string{"osd.0", "osd.1"},
	}}, v.Nodes)
	require.Equal(t, []storage.Daemon{{Name: "osd.4", Up: true, Pod: storage.PodPending}}, v.Domain("zone-2").Troubled,
		"its node is not known")
}

func TestFailureDomainOSD(t *testing.T) {
	w := newWorld(size{zones: 3, hosts: 2, osds: 2})
	w.spreadOver("osd")
	w.stop(3, 21)
	v := w.view()
	require.Empty(t, v.Problems)
	require.Equal(t, "osd", v.FailureDomainType)
	require.Equal(t, "ceph-osd-id", v.LabelKey)
	require.Equal(t, []storage.Domain{{
		Name: "osd.3", LabelValues: []string{"3"}, Daemons: 1,
		Troubled: []storage.Daemon{{Name: "osd.3", Node: "node-1", DownAt: 21, Pod: storage.PodReady}},
	}}, v.Domains)
	require.Equal(t, []string{"osd.2", "osd.3"}, v.Nodes[0].Domains)
}

func TestTouched(t *testing.T) {
	w := newWorld(sixNodes)
	w.input.Proof = &storage.CleanProof{ChangeEpoch: 15}
	w.osd(0).UpFrom = 16 // restarted since
	w.stop(2, 15)        // down and out then already
	w.osd(2).In = false
	w.osd(5).UpFrom, w.osd(5).DownAt = 14, 13 // restarted before
	v := w.view()
	require.Equal(t, int64(16), v.ChangeEpoch)
	require.Len(t, v.Domains, 2)
	require.True(t, v.Domain("zone-0").Touched)
	require.True(t, v.Domain("zone-0").Returned)
	require.False(t, v.Domain("zone-1").Touched)
	w.osd(2).In = true
	v = w.view()
	require.True(t, v.Domain("zone-1").Touched, "data may be placed on it now")
	require.True(t, v.Domain("zone-1").Returned)
	require.Equal(t, []string{"osd.2"}, v.Awaited)
	w.input.Proof.Awaited = v.Awaited
	require.False(t, w.view().Domain("zone-1").Touched, "the data was whole without it, and it was in then, too")
	w.input.Proof = nil
	require.False(t, w.view().Domain("zone-0").Touched, "without a proof there is nothing to be newer than")
}

func TestPodless(t *testing.T) {
	w := newWorld(sixNodes)
	w.deletePod(2)
	require.Equal(t, 1, w.view().Podless)
	w.stop(2, 21)
	require.Zero(t, w.view().Podless, "one that is down serves nowhere")
}

func TestIntolerantAndNoout(t *testing.T) {
	w := newWorld(sixNodes)
	w.input.Map.Pools[0].MinSize = 3
	w.input.Map.CrushNodeFlags = map[string][]string{"node-1": {"noout"}}
	v := w.view()
	require.Equal(t, []string{`pool "rbd" (size 3, min_size 3) would become unavailable with any zone`}, v.Intolerant)
	require.Equal(t, []string{"node-1"}, v.Flagged)
	w.input.ToleratedPools = []string{"rbd"}
	require.Empty(t, w.view().Intolerant)
}

// TestCutAcross: PDUs that feed hosts of several zones, beside a pool that relies on zones. Hosts may go, and the
// reason names both pools.
func TestCutAcross(t *testing.T) {
	w := newWorld(sixNodes)
	w.crush.Types = append(w.crush.Types, ceph.CrushType{ID: 5, Name: "pdu"})
	w.addPDU(-50, "pdu-a", "node-0", "node-2", "node-4")
	w.addPDU(-51, "pdu-b", "node-1", "node-3", "node-5")
	power := ceph.CrushBucket{ID: -52, Name: "power", TypeID: 11}
	appendItem(&power, -50)
	appendItem(&power, -51)
	w.crush.Buckets = append(w.crush.Buckets, power)
	w.crush.Rules = append(w.crush.Rules, ceph.CrushRule{ID: 1, Name: "by pdu", Steps: []ceph.CrushStep{
		{Op: "take", Item: power.ID}, {Op: "chooseleaf_firstn", Type: "pdu"}, {Op: "emit"},
	}})
	require.Equal(t, "zone", w.view().FailureDomainType, "no pool relies on the PDUs")
	require.Empty(t, w.view().Compromise)

	w.input.Map.Pools = append(w.input.Map.Pools, ceph.Pool{ID: 2, Name: "meta", Size: 2, MinSize: 1, Rule: 1})
	v := w.view()
	require.Equal(t, "host", v.FailureDomainType)
	require.Empty(t, v.Problems)
	require.Empty(t, v.Intolerant)
	for _, word := range []string{`"rbd"`, "type zone", `"meta"`, "type pdu"} {
		require.Contains(t, v.Compromise, word)
	}
	w.input.Map.Pools[1].MinSize = 2
	require.Equal(t, []string{
		`pool "meta" (size 2, min_size 2) would become unavailable with any host`,
		"the failure domain is the host because " + v.Compromise,
	}, w.view().Intolerant)

	// A node that is in two zones at once is in no failure domain of a pool that relies on zones.
	w.input.Map.Pools = w.input.Map.Pools[:1]
	appendItem(w.bucket("zone-1"), w.bucket("node-0").ID)
	v = w.view()
	require.Equal(t, "osd", v.FailureDomainType)
	require.Contains(t, v.Compromise, "node-0 is in several buckets of type zone at once")
}

// TestFlags: with those that make a death invisible nothing can be known, wherever they are set. Others are said.
func TestFlags(t *testing.T) {
	set := map[string]func(w *world, flag string){
		"the cluster": func(w *world, flag string) { w.input.Map.Flags = []string{"sortbitwise", flag} },
		"node-1": func(w *world, flag string) {
			w.input.Map.CrushNodeFlags = map[string][]string{"node-1": {"noout", flag}}
		},
		"ssd":   func(w *world, flag string) { w.input.Map.DeviceClassFlags = map[string][]string{"ssd": {flag}} },
		"osd.3": func(w *world, flag string) { w.osd(3).State = append(w.osd(3).State, flag) },
	}
	for where, set := range set {
		for _, flag := range []string{"nodown", "noup", "pauserd", "pausewr"} {
			w := newWorld(sixNodes)
			set(w, flag)
			v := w.view()
			require.Equal(t, []string{"with the flag " + flag + " Ceph does not tell which OSDs serve; it is set on " + where},
				v.Problems)
			require.Empty(t, v.Notes)
		}
		for _, flag := range []string{"norecover", "nobackfill", "norebalance", "noin"} {
			w := newWorld(sixNodes)
			set(w, flag)
			v := w.view()
			require.Empty(t, v.Problems)
			require.Equal(t, []string{"the flag " + flag + " may keep data from becoming whole; it is set on " + where}, v.Notes)
		}
	}
	require.Empty(t, newWorld(sixNodes).view().Notes)
}

func TestShape(t *testing.T) {
	shape := newWorld(sixNodes).view().Shape
	same := map[string]func(*world){
		"an OSD goes down": func(w *world) { w.stop(2, 21) },
		"a pod goes":       func(w *world) { w.deletePod(2) },
		"more PGs":         func(w *world) { w.input.Map.Pools[0].PGNum = 64 },
		"another order":    func(w *world) { o := w.input.Map.OSDs; o[0], o[5] = o[5], o[0] },
	}
	for name, change := range same {
		w := newWorld(sixNodes)
		change(w)
		require.Equal(t, shape, w.view().Shape, name)
	}
	other := map[string]func(*world){
		"an OSD is removed":      func(w *world) { w.input.Map.OSDs = w.input.Map.OSDs[:5] },
		"a pool's size":          func(w *world) { w.input.Map.Pools[0].Size = 4 },
		"a pool's min_size":      func(w *world) { w.input.Map.Pools[0].MinSize = 1 },
		"a pool is added":        func(w *world) { w.input.Map.Pools = append(w.input.Map.Pools, w.input.Map.Pools[0]) },
		"another failure domain": func(w *world) { w.spreadOver("host") },
	}
	for name, change := range other {
		w := newWorld(sixNodes)
		change(w)
		require.NotEqual(t, shape, w.view().Shape, name)
	}
}

// TestBigClustersGiveSmallViews: the View crosses workflow boundaries.
func TestBigClustersGiveSmallViews(t *testing.T) {
	v := big().view()
	require.Equal(t, 10000, v.Daemons)
	text, err := json.Marshal(v)
	require.NoError(t, err)
	require.Less(t, len(text), 4000)
}

// big is 1,000 nodes with 10,000 OSDs, one node of which is drained.
func big() *world {
	w := newWorld(size{zones: 5, hosts: 200, osds: 10})
	w.node(7).Unschedulable = true
	for id := 70; id < 80; id++ {
		w.evict(id)
	}
	w.stop(70, 21)
	w.input.Interest = storageview.Interest{Domains: []string{"zone-0"}, Nodes: []string{"node-7"}}
	return w
}

func BenchmarkBuild10000OSDs(b *testing.B) {
	w := big()
	w.view()
	for b.Loop() {
		storageview.Build(w.input)
	}
}

func BenchmarkBuildAndTree10000OSDs(b *testing.B) {
	w := big()
	for b.Loop() {
		w.view()
	}
}
