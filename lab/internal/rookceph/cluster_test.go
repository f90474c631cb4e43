package rookceph

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// sized is a cluster of that many zones, nodes in each and OSDs on each.
func sized(zones, nodes, osds int) cluster {
	topo := instance.DefaultTopology()
	topo.Zones, topo.NodesPerZone, topo.OSDsPerNode = zones, nodes, osds
	topo.Mons = min(3, zones*nodes)
	return cluster{inst: instance.Instance{Name: "t", Dir: "/lab/t", Ports: instance.Ports{Base: 12000}}, topo: topo}
}

func TestPoolFitsTopology(t *testing.T) {
	for _, c := range []struct {
		zones, nodes, osds       int
		replicas, minReplicas, n int
	}{
		{3, 2, 1, 3, 2, 32},
		{3, 1, 2, 3, 2, 32},
		{3, 2, 4, 3, 2, 128},
		{5, 1, 1, 3, 2, 32},
		{2, 1, 1, 2, 1, 32},
		{1, 1, 1, 1, 1, 32},
	} {
		cl := sized(c.zones, c.nodes, c.osds)
		if got := [3]int{cl.replicas(), cl.minReplicas(), cl.placementGroups()}; got != [3]int{
			c.replicas,
			c.minReplicas, c.n,
		} {
			t.Errorf("%d zones × %d nodes × %d OSDs: %v", c.zones, c.nodes, c.osds, got)
		}
	}
}

func TestTooManyOSDsAreRefused(t *testing.T) {
	if err := sized(3, 2, 4).validate(); err != nil {
		t.Error(err)
	}
	err := sized(10, 10, 2).validate()
	if err == nil || !strings.Contains(err.Error(), "200 OSDs") {
		t.Error(err)
	}
}

func TestKeyIsCephx(t *testing.T) {
	now := time.Unix(1_700_000_000, 5)
	b, err := base64.StdEncoding.DecodeString(newKey(now, aes))
	if err != nil {
		t.Fatal(err)
	}
	if len(b) != 28 || b[0] != 1 || b[10] != 16 {
		t.Errorf("% x", b)
	}
	b, err = base64.StdEncoding.DecodeString(newKey(now, aes256k))
	if err != nil {
		t.Fatal(err)
	}
	if len(b) != 44 || b[0] != 2 || b[10] != 32 {
		t.Errorf("% x", b)
	}
	if newKey(now, aes) == newKey(now, aes) {
		t.Error("two equal secrets")
	}
}

func TestKeyringEscapesQuotes(t *testing.T) {
	id := identity{Keys: map[string]string{"client.x": "K"}}
	got := id.keyring(entity{"client.x", [][2]string{{"mon", `allow command "status"`}}})
	want := "[client.x]\n\tkey = K\n\tcaps mon = \"allow command \\\"status\\\"\"\n"
	if got != want {
		t.Errorf("%q", got)
	}
}

func TestMonIDsCountAsRooks(t *testing.T) {
	for i, want := range map[int]string{0: "a", 25: "z", 26: "aa", 27: "ab"} {
		if got := monID(i); got != want {
			t.Errorf("%d: %s", i, got)
		}
	}
}

func TestMonEndpoints(t *testing.T) {
	got, err := sized(3, 2, 1).monEndpoints()
	if err != nil {
		t.Fatal(err)
	}
	if got["data"] != "a=127.0.0.1:12100,b=127.0.0.1:12101,c=127.0.0.1:12102" || got["maxMonId"] != "2" {
		t.Error(got)
	}
	var mapping struct {
		Node map[string]struct{ Name, Hostname, Address string } `json:"node"`
	}
	if err := json.Unmarshal([]byte(got["mapping"]), &mapping); err != nil || mapping.Node["b"].Name != "node-b" {
		t.Error(got["mapping"], err)
	}
}

func TestConfigIsOneForPodAndMachine(t *testing.T) {
	c := sized(3, 2, 1)
	c.topo.DownOut = 10 * time.Second
	pod, machine := c.config("F", "", podPlace()), c.config("F", c.monHost(), c.machinePlace())
	for _, want := range []string{
		"fsid = F\n",
		"mon_osd_down_out_interval = 10\n", "osd_pool_default_size = 3\n", "osd_pool_default_min_size = 2\n",
	} {
		if !strings.Contains(pod, want) || !strings.Contains(machine, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(pod, "/lab/t") {
		t.Error("a pod's configuration names a folder of the machine")
	}
	if !strings.Contains(machine, "osd_data = /lab/t/ceph/osd-$id\n") {
		t.Error("the machine's configuration does not")
	}
}

func TestPeriods(t *testing.T) {
	c := sized(3, 2, 1)
	for periods, fast := range map[instance.CephPeriods]bool{
		instance.CephPeriodsFast:    true,
		instance.CephPeriodsDefault: false,
	} {
		c.topo.CephPeriods = periods
		config := c.config("F", "", podPlace())
		for _, option := range []string{
			"osd_mon_report_interval", "mgr_stats_period", "mgr_tick_period",
			"mon_mgr_digest_period", "paxos_propose_interval",
		} {
			if strings.Contains(config, option) != fast {
				t.Errorf("%s: %s", periods, option)
			}
		}
	}
}

func TestSetUpIsChecked(t *testing.T) {
	c := sized(3, 1, 1)
	const osds = `{"osds":[{"osd":0},{"osd":1},{"osd":2}],"pools":[`
	for name, test := range map[string]struct {
		output string
		ok     bool
	}{
		"done": {"\n{\"osdid\":0}\n\npool 'lab' created\n" + osds +
			`{"pool_name":"lab","application_metadata":{"rados":{}}}]}` + "\n", true},
		"refused": {"Error EACCES: access denied\n", false},
		"no pool": {osds + "]}\n", false},
		"no app":  {osds + `{"pool_name":"lab","application_metadata":{}}]}` + "\n", false},
		"too few": {
			`{"osds":[{"osd":0}],"pools":[{"pool_name":"lab","application_metadata":{"rados":{}}}]}` + "\n",
			false,
		},
		"broken JSON": {"{\n", false},
	} {
		if err := c.checkSetUp(test.output); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
