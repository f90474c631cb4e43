package rookceph

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/runtime"
)

const (
	// Namespace is Rook's default.
	Namespace = "rook-ceph"
	// Pool is the replicated pool that the load writes to. Its CRUSH rule has the same name, as with Rook.
	Pool = "lab"
	// ClientName is a user with the rights that lockkeeper needs and no more.
	ClientName = "client.lockkeeper"

	mgrName = "a"

	// An OSD binds four ports in order: public, cluster and two for heartbeats. When the cluster wrongly believes it to be
	// down it takes three new ones and keeps away from the old, so twice as many make it independent of its neighbours.
	portsPerDaemon = 8
)

// cluster is the Ceph of one instance.
type cluster struct {
	inst instance.Instance
	topo instance.Topology
	// sandbox is where programs of another release than the machine's run; nil: there are none.
	sandbox *runtime.Sandbox
}

// AdminConfig is the ceph.conf with which `ceph -s` on the machine works as client.admin.
func AdminConfig(inst instance.Instance) string { return inst.Path("ceph", "ceph.conf") }

func (c cluster) path(elem ...string) string {
	return c.inst.Path(append([]string{"ceph"}, elem...)...)
}

// mon is one monitor of the first monmap.
type mon struct {
	id         string
	node, zone string
	port       int    // of the host network; 0: it has a Service
	service    string // the address of its Service; "": it has none
}

// Ceph's own ports of monitors.
const portV2, portV1 = 3300, 6789

// addr is the address as Ceph writes it. On the host network a single protocol: messenger v1 would double the ports.
func (m mon) addr() string {
	if m.service != "" {
		return fmt.Sprintf("[v2:%s:%d/0,v1:%s:%d/0]", m.service, portV2, m.service, portV1)
	}
	return fmt.Sprintf("[v2:127.0.0.1:%d/0]", m.port)
}

// endpoint is the one address that Rook gives to everybody: that of the older protocol, if it is served.
func (m mon) endpoint() string {
	if m.service != "" {
		return fmt.Sprintf("%s:%d", m.service, portV1)
	}
	return fmt.Sprintf("127.0.0.1:%d", m.port)
}

// firstMonService numbers the address of the first monitor's Service: below it are those that Kubernetes wants.
const firstMonService = 10

// mons spreads the monitors over the first nodes, which are in different zones.
func (c cluster) mons() []mon {
	var mons []mon
	for i, node := range c.topo.Nodes()[:c.topo.Mons] {
		m := mon{id: monID(i), node: node.Name, zone: node.Zone}
		if c.topo.MonServices() {
			m.service = c.inst.Ports.ServiceAddress(firstMonService + i)
		} else {
			m.port = c.inst.Ports.CephMon(i)
		}
		mons = append(mons, m)
	}
	return mons
}

// monID counts as Rook does: a to z, then aa, ab, …
func monID(i int) string {
	id := ""
	for i++; i > 0; i = (i - 1) / 26 {
		id = string(rune('a'+(i-1)%26)) + id
	}
	return id
}

func (c cluster) monHost() string {
	var addrs []string
	for _, m := range c.mons() {
		addrs = append(addrs, m.addr())
	}
	return strings.Join(addrs, ",")
}

// mgrPort is the first of the manager's ports, osdPort the first of an OSD's.
func (c cluster) mgrPort() int {
	first, _ := c.inst.Ports.CephDaemons()
	return first
}

func (c cluster) osdPort(id int) int { return c.mgrPort() + portsPerDaemon*(id+1) }

// validate says what does not fit.
func (c cluster) validate() error {
	if err := c.topo.Validate(); err != nil {
		return err
	}
	first, last := c.inst.Ports.CephDaemons()
	if room := (last-first+1)/portsPerDaemon - 1; len(c.topo.OSDs()) > room {
		return fmt.Errorf("%d OSDs asked for, an instance has ports for %d", len(c.topo.OSDs()), room)
	}
	return nil
}

// replicas is the pool's size: three, or one for each zone if there are fewer.
func (c cluster) replicas() int { return min(3, c.topo.Zones) }

// minReplicas lets one zone be lost, as long as there is another.
func (c cluster) minReplicas() int { return max(1, c.replicas()-1) }

// placementGroups gives every OSD about sixteen, and never fewer than 32 altogether: enough for every OSD to be primary
// of some, so that the loss of any one shows.
func (c cluster) placementGroups() int {
	n := 32
	for n*c.replicas() < 16*len(c.topo.OSDs()) {
		n *= 2
	}
	return n
}

// adminSocket is where a daemon answers on the machine. Pods see the same folder as /run/ceph.
func (c cluster) adminSocket(daemon string) string {
	return filepath.Join(c.path("run"), daemon+".asok")
}
