package instance

import (
	"strings"
	"testing"
)

func TestNodesAndOSDs(t *testing.T) {
	topo := Topology{Zones: 3, NodesPerZone: 2, OSDsPerNode: 2, Mons: 3}
	var nodes []string
	for _, n := range topo.Nodes() {
		nodes = append(nodes, n.Name+"="+n.Zone)
	}
	want := "node-a=zone-x node-b=zone-y node-c=zone-z node-d=zone-x node-e=zone-y node-f=zone-z"
	if got := strings.Join(nodes, " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	osds := topo.OSDs()
	if len(osds) != 12 || osds[1] != (OSD{1, "node-a", "zone-x", "osd-1"}) ||
		osds[2] != (OSD{2, "node-b", "zone-y", "osd-0"}) {
		t.Errorf("got %v", osds)
	}
	large := Topology{Zones: 5, NodesPerZone: 6, OSDsPerNode: 1, Mons: 1}.Nodes()
	if last := large[29]; last != (Node{"node-ad", "zone-5"}) {
		t.Errorf("30th node: %v", last)
	}
}

func TestMachinesAreDealtAsNodesAre(t *testing.T) {
	got := Topology{Zones: 3, Machines: 7}.MachinesByZone()
	if len(got) != 3 || got["zone-x"] != 3 || got["zone-y"] != 2 || got["zone-z"] != 2 {
		t.Errorf("got %v", got)
	}
	if got := (Topology{Zones: 3}).MachinesByZone(); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestValidateNamesTheFlag(t *testing.T) {
	if err := DefaultTopology().Validate(); err != nil {
		t.Error(err)
	}
	for _, test := range []struct {
		topo Topology
		want string
	}{
		{Topology{Zones: 0, NodesPerZone: 1, OSDsPerNode: 1, Mons: 1}, "--zones 0"},
		{Topology{Zones: 1, NodesPerZone: 1, OSDsPerNode: 51, Mons: 1}, "--osds-per-node 51"},
		{Topology{Zones: 1, NodesPerZone: 2, OSDsPerNode: 1, Mons: 3}, "--mons 3: there are only 2 nodes"},
		{Topology{Zones: 1, NodesPerZone: 1, OSDsPerNode: 1, Mons: 1, Machines: -1}, "--machines -1: allowed are 0 to 1000"},
		{Topology{Zones: 1, NodesPerZone: 1, OSDsPerNode: 1, Mons: 1, NodeCPUs: -1}, "--node-cpus -1: allowed are 1 to 1000"},
		{Topology{Zones: 1, NodesPerZone: 1, OSDsPerNode: 1, Mons: 1, DownOut: -1}, "--down-out"},
		{Topology{Zones: 3, NodesPerZone: 7, OSDsPerNode: 1, Mons: 1, Longhorn: true}, "--longhorn: allowed are up to 20"},
		{
			Topology{Zones: 1, NodesPerZone: 1, OSDsPerNode: 1, Mons: 1, OSDPods: "some"},
			`--osd-pods "some": allowed are rook and none`,
		},
		{
			Topology{Zones: 1, NodesPerZone: 1, OSDsPerNode: 1, Mons: 1, OSDPods: OSDPodsRook, CephPeriods: "slow"},
			`--ceph-periods "slow"`,
		},
		{
			Topology{
				Zones: 1, NodesPerZone: 1, OSDsPerNode: 1, Mons: 1, OSDPods: OSDPodsRook, ControllerAccounts: "none",
			}, `--controller-accounts "none": allowed are shared and own`,
		},
		{
			Topology{
				Zones: 1, NodesPerZone: 1, OSDsPerNode: 1, Mons: 1, OSDPods: OSDPodsRook, MonStorage: "tape",
			}, `--mon-storage "tape": allowed are none, hostpath and pvc`,
		},
		{ceph(17, ""), "--ceph: no Ceph 17: allowed are 16, 18, 20, and none"},
		{ceph(18, CephKeysAES256K), "--ceph-keys aes256k: Ceph 18 has only aes"},
		{ceph(16, CephKeysBoth), "--ceph-keys both: Ceph 16 has only aes"},
		{ceph(20, "des"), `--ceph-keys "des": allowed are aes, aes256k and both`},
	} {
		if err := test.topo.Validate(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %s", test.topo, err, test.want)
		}
	}
}

func ceph(release int, keys CephKeys) Topology {
	t := DefaultTopology()
	t.CephRelease, t.CephKeys = release, keys
	return t
}

func TestKeysOfARelease(t *testing.T) {
	for _, c := range []struct {
		release int
		asked   CephKeys
		want    CephKeys
	}{
		{0, "", CephKeysAES},
		{16, "", CephKeysAES},
		{18, "", CephKeysAES},
		{20, "", CephKeysAES256K},
		{20, CephKeysAES, CephKeysAES},
		{20, CephKeysBoth, CephKeysBoth},
	} {
		topo := ceph(c.release, c.asked)
		if err := topo.Validate(); err != nil || topo.Keys() != c.want {
			t.Errorf("%+v: %s, %v", c, topo.Keys(), err)
		}
	}
}
