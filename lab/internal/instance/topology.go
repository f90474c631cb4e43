package instance

import (
	"cmp"
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper/lab/internal/image"
)

// Topology is the size of a lab: which machines it pretends to have and which storage daemons run on them.
type Topology struct {
	Zones        int `json:"zones"`
	NodesPerZone int `json:"nodesPerZone"`
	OSDsPerNode  int `json:"osdsPerNode"`
	Mons         int `json:"mons"`
	// Machines is how many Machines of Cluster API there are; 0: it does not run. The first nodes are theirs, and what
	// they are more than nodes have nodes without OSDs.
	Machines int `json:"machines,omitempty"`
	// NodeCPUs is how many CPUs each node says it has; 0: DefaultNodeCPUs.
	NodeCPUs int `json:"nodeCPUs,omitempty"`
	// Longhorn says that it runs, on all nodes.
	Longhorn bool `json:"longhorn,omitempty"`
	// DownOut is how long Ceph waits before it marks a down OSD out and moves its data (mon_osd_down_out_interval).
	DownOut time.Duration `json:"downOut"`
	// OSDPods says who runs the OSDs.
	OSDPods OSDPods `json:"osdPods"`
	// OSDStorage says what an OSD's data is tied to; "": OSDStorageNode.
	OSDStorage OSDStorage `json:"osdStorage,omitempty"`
	// CephPeriods says how often Ceph's daemons tell each other what they know.
	CephPeriods CephPeriods `json:"cephPeriods,omitempty"`
	// CephRelease is the major version of Ceph that the lab begins with; 0 is a lab that was kept by a version that had
	// only one.
	CephRelease int `json:"cephRelease,omitempty"`
	// CephKeys are the keys of Ceph's users; "": those that a new cluster of the release has.
	CephKeys CephKeys `json:"cephKeys,omitempty"`
	// MonStorage says where the first mons have their stores, and by that also their addresses; "": MonStorageNone.
	MonStorage MonStorage `json:"monStorage,omitempty"`
	// ControllerAccounts says as whom Kubernetes' controllers ask; "": ControllerAccountsShared.
	ControllerAccounts ControllerAccounts `json:"controllerAccounts,omitempty"`
}

// Release is the major version of Ceph that the lab begins with.
func (t Topology) Release() int { return cmp.Or(t.CephRelease, image.Machine) }

// DefaultNodeCPUs is enough for whatever is run in a lab. Pods are held to no limit: how many CPUs a node says it has
// decides what is scheduled there, and what an autoscaler makes of it.
const DefaultNodeCPUs = 16

// CPUs is how many CPUs each node says it has.
func (t Topology) CPUs() int { return cmp.Or(t.NodeCPUs, DefaultNodeCPUs) }

// CephKeys says of which type the keys of Ceph's users are.
type CephKeys string

const (
	// CephKeysAES is what every release knows.
	CephKeysAES CephKeys = "aes"
	// CephKeysAES256K is what a new cluster of Ceph 20.2.4 has, and nothing else: older clients cannot speak to it.
	CephKeysAES256K CephKeys = "aes256k"
	// CephKeysBoth is a cluster on its way: its daemons have new keys and its clients have old ones.
	CephKeysBoth CephKeys = "both"
)

// FirstWithAES256K is the first release that has keys of that type.
const FirstWithAES256K = 20

// Keys are the keys of Ceph's users.
func (t Topology) Keys() CephKeys {
	switch {
	case t.CephKeys != "":
		return t.CephKeys
	case t.Release() >= FirstWithAES256K:
		return CephKeysAES256K
	default:
		return CephKeysAES
	}
}

// CephPeriods says how often Ceph's daemons tell each other what they know.
type CephPeriods string

const (
	// CephPeriodsFast is every second, so that nobody waits for them.
	CephPeriodsFast CephPeriods = "fast"
	// CephPeriodsDefault is as Ceph has them: OSDs report every 5 s, the manager tells the monitors every 2 s, which agree
	// every second.
	CephPeriodsDefault CephPeriods = "default"
)

// ControllerAccounts says as whom the controllers of the controller manager ask the API server.
type ControllerAccounts string

const (
	// ControllerAccountsShared: all of them as system:kube-controller-manager.
	ControllerAccountsShared ControllerAccounts = "shared"
	// ControllerAccountsOwn: each as a service account of its own in kube-system, as kubeadm has it.
	ControllerAccountsOwn ControllerAccounts = "own"
)

// MonStorage says where the first mons have their stores. Once they run, they belong to whoever looks after mons: the
// lab never brings them back to their first shape.
type MonStorage string

const (
	// MonStorageNone is none of Kubernetes': a folder of the lab. Such mons are on the host network, at ports of the lab.
	MonStorageNone MonStorage = "none"
	// MonStorageHostPath is a path of the mon's node, at Rook's place. Such mons have Services and Ceph's own ports.
	MonStorageHostPath MonStorage = "hostpath"
	// MonStoragePVC is a volume claim, usable in the mon's zone. Such mons have Services and Ceph's own ports, too.
	MonStoragePVC MonStorage = "pvc"
)

// MonServices tells whether the first mons have Services, and Ceph's own ports there.
func (t Topology) MonServices() bool {
	return t.MonStorage == MonStorageHostPath || t.MonStorage == MonStoragePVC
}

// OSDPods says who runs the OSDs.
type OSDPods string

const (
	// OSDPodsRook is a Deployment for each OSD, as Rook makes them.
	OSDPodsRook OSDPods = "rook"
	// OSDPodsNone is nobody: the disks are there, and so is a CephOSD that says how to run them.
	OSDPodsNone OSDPods = "none"
)

// OSDStorage says what an OSD's data is tied to.
type OSDStorage string

const (
	// OSDStorageNode is a disk of a node: the OSD runs there or nowhere.
	OSDStorageNode OSDStorage = "node"
	// OSDStoragePVC is a volume of a zone, as Rook's portable OSDs have: the OSD runs on any node of the zone, and its
	// host in the CRUSH map has the name of the volume.
	OSDStoragePVC OSDStorage = "pvc"
)

// DefaultTopology is the smallest cluster on which every rule of lockkeeper shows: three failure domains, so that
// min_size 2 survives the loss of one, and two nodes in each, so that a zone is more than a node.
func DefaultTopology() Topology {
	return Topology{
		Zones: 3, NodesPerZone: 2, OSDsPerNode: 1, Mons: 3, DownOut: 10 * time.Minute, OSDPods: OSDPodsRook,
		CephPeriods: CephPeriodsFast, CephRelease: image.Machine, MonStorage: MonStorageNone, NodeCPUs: DefaultNodeCPUs,
	}
}

// Node is one machine of the lab.
type Node struct {
	Name string `json:"name"`
	Zone string `json:"zone"`
}

// OSD is one object storage daemon and the node that holds its disk.
type OSD struct {
	ID   int
	Node string
	Zone string
	// Device is the name of its disk, which every node has one of: osd-0, osd-1, …
	Device string
}

// Portable tells whether OSDs may run on any node of their zone.
func (t Topology) Portable() bool { return t.OSDStorage == OSDStoragePVC }

// CrushHost is the OSD's host in the CRUSH map.
func (t Topology) CrushHost(osd OSD) string {
	if t.Portable() {
		return fmt.Sprintf("set1-data-%d", osd.ID)
	}
	return osd.Node
}

// Validate says which size cannot be built, and what can.
func (t Topology) Validate() error {
	for _, c := range []struct {
		flag     string
		n        int
		min, max int
	}{
		{"--zones", t.Zones, 1, 26},
		{"--nodes-per-zone", t.NodesPerZone, 1, 100},
		{"--osds-per-node", t.OSDsPerNode, 1, 50},
		{"--mons", t.Mons, 1, maxMons},
		{"--machines", t.Machines, 0, maxMachines},
		{"--node-cpus", t.CPUs(), 1, maxNodeCPUs},
	} {
		if c.n < c.min || c.n > c.max {
			return fmt.Errorf("%s %d: allowed are %d to %d", c.flag, c.n, c.min, c.max)
		}
	}
	if t.Mons > t.Zones*t.NodesPerZone {
		return fmt.Errorf("--mons %d: there are only %d nodes, and two mons never share one", t.Mons, t.Zones*t.NodesPerZone)
	}
	if nodes := max(t.Zones*t.NodesPerZone, t.Machines); t.Longhorn && nodes > MaxLonghornNodes {
		return fmt.Errorf("--longhorn: allowed are up to %d nodes, because each takes a range of the machine's ports; this "+
			"lab would have %d", MaxLonghornNodes, nodes)
	}
	if t.DownOut < 0 {
		return fmt.Errorf("--down-out %s: must not be negative (0 means never)", t.DownOut)
	}
	if t.OSDPods != OSDPodsRook && t.OSDPods != OSDPodsNone {
		return fmt.Errorf("--osd-pods %q: allowed are %s and %s", t.OSDPods, OSDPodsRook, OSDPodsNone)
	}
	switch t.OSDStorage {
	case "", OSDStorageNode:
	case OSDStoragePVC:
		if t.OSDPods != OSDPodsRook {
			return fmt.Errorf("--osd-storage %s: needs --osd-pods %s", t.OSDStorage, OSDPodsRook)
		}
	default:
		return fmt.Errorf("--osd-storage %q: allowed are %s and %s", t.OSDStorage, OSDStorageNode, OSDStoragePVC)
	}
	switch t.CephPeriods {
	case CephPeriodsFast, CephPeriodsDefault, "": // "" is a lab that was kept by a version that had only one
	default:
		return fmt.Errorf("--ceph-periods %q: allowed are %s and %s", t.CephPeriods, CephPeriodsFast, CephPeriodsDefault)
	}
	switch t.ControllerAccounts {
	case "", ControllerAccountsShared, ControllerAccountsOwn:
	default:
		return fmt.Errorf("--controller-accounts %q: allowed are %s and %s", t.ControllerAccounts,
			ControllerAccountsShared, ControllerAccountsOwn)
	}
	switch t.MonStorage {
	case "", MonStorageNone, MonStorageHostPath, MonStoragePVC:
	default:
		return fmt.Errorf("--mon-storage %q: allowed are %s, %s and %s", t.MonStorage, MonStorageNone, MonStorageHostPath,
			MonStoragePVC)
	}
	return t.validateCeph()
}

func (t Topology) validateCeph() error {
	if err := image.Check(t.Release()); err != nil {
		return fmt.Errorf("--ceph: %w, and none", err)
	}
	switch t.CephKeys {
	case "", CephKeysAES:
	case CephKeysAES256K, CephKeysBoth:
		if t.Release() < FirstWithAES256K {
			return fmt.Errorf("--ceph-keys %s: Ceph %d has only %s; aes256k came with 20.2.4", t.CephKeys,
				t.Release(), CephKeysAES)
		}
	default:
		return fmt.Errorf("--ceph-keys %q: allowed are %s, %s and %s", t.CephKeys, CephKeysAES, CephKeysAES256K, CephKeysBoth)
	}
	return nil
}

// Nodes lists the nodes, dealt round robin over the zones, so that the first nodes (which get the mons) are in
// different ones.
func (t Topology) Nodes() []Node {
	nodes := make([]Node, 0, t.Zones*t.NodesPerZone)
	for i := range cap(nodes) {
		nodes = append(nodes, Node{Name: NodeName(i), Zone: zoneName(i % t.Zones)})
	}
	return nodes
}

// NodeName is the name of the i-th node.
func NodeName(i int) string { return "node-" + letters(i) }

// MachinesByZone is how many Machines there are in each zone, dealt as the nodes are.
func (t Topology) MachinesByZone() map[string]int {
	byZone := map[string]int{}
	for i := range t.Machines {
		byZone[zoneName(i%t.Zones)]++
	}
	return byZone
}

const (
	maxMachines = 1000
	maxNodeCPUs = 1000
)

// MaxLonghornNodes is for how many nodes there are ports: Longhorn's processes listen on all of the machine's
// addresses.
const MaxLonghornNodes = 20

// OSDs lists the OSDs in the order of their nodes: with two a node, osd.0 and osd.1 are on node-a.
func (t Topology) OSDs() []OSD {
	var osds []OSD
	for _, n := range t.Nodes() {
		for _, device := range t.Devices() {
			osds = append(osds, OSD{ID: len(osds), Node: n.Name, Zone: n.Zone, Device: device})
		}
	}
	return osds
}

// Devices lists the names of the disks that every node has for its OSDs.
func (t Topology) Devices() []string {
	var devices []string
	for i := range t.OSDsPerNode {
		devices = append(devices, fmt.Sprintf("osd-%d", i))
	}
	return devices
}

// ZoneNames lists the zones.
func (t Topology) ZoneNames() []string {
	names := make([]string, t.Zones)
	for i := range names {
		names[i] = zoneName(i)
	}
	return names
}

// zoneName gives zone-x, zone-y, zone-z, and then zone-4, zone-5, …
func zoneName(i int) string {
	if i < 3 {
		return "zone-" + string(rune('x'+i))
	}
	return fmt.Sprintf("zone-%d", i+1)
}

// letters numbers as spreadsheets do: a … z, aa, ab, …
func letters(i int) string {
	s := ""
	for i++; i > 0; i = (i - 1) / 26 {
		s = string(rune('a'+(i-1)%26)) + s
	}
	return s
}
