package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
)

// statsPeriod is that of OSDs' reports and of the manager's, as in the lab.
const statsPeriod = time.Second

// placementGroups is a usual number: about a hundred for each OSD, of three copies.
const placementGroups = 32768

// simulatedCeph answers as Ceph's monitors do about a cluster in which one OSD at a time is down. What it says of
// placement groups is as late as a manager's word.
type simulatedCeph struct {
	began time.Time

	mu     sync.Mutex
	osdMap ceph.OSDMap
	crush  []byte
	dump   []byte // of osdMap; nil: it has changed
	unset  time.Time
	clean  bool
}

func newCeph(domains, perDomain int) (*simulatedCeph, error) {
	c := &simulatedCeph{began: time.Now(), clean: true}
	c.osdMap = ceph.OSDMap{
		Epoch: 100, CrushVersion: 1, CrushNodeFlags: map[string][]string{},
		Pools: []ceph.Pool{{ID: 1, Name: "rbd", Size: 3, MinSize: 2, Rule: 1, PGNum: placementGroups}},
	}
	crush := ceph.CrushMap{
		Types: []ceph.CrushType{{ID: 0, Name: "osd"}, {ID: 1, Name: "host"}, {ID: 3, Name: "rack"}, {ID: 11, Name: "root"}},
		Rules: []ceph.CrushRule{{
			ID: 1, Name: "by rack",
			Steps: []ceph.CrushStep{{Op: "take", Item: -1}, {Op: "chooseleaf_firstn", Type: "rack"}, {Op: "emit"}},
		}},
	}
	type item = struct {
		ID int `json:"id"`
	}
	root := ceph.CrushBucket{ID: -1, Name: "default", TypeID: 11}
	next := -2
	for d := range domains {
		rack := ceph.CrushBucket{ID: next, Name: domainName(d), TypeID: 3}
		host := ceph.CrushBucket{ID: next - 1, Name: nodeName(d), TypeID: 1}
		next -= 2
		for range perDomain {
			id := len(c.osdMap.OSDs)
			c.osdMap.OSDs = append(c.osdMap.OSDs,
				ceph.OSD{ID: id, Up: true, In: true, Weight: 1, UpFrom: int64(10 + id%50), State: []string{"exists", "up"}})
			crush.Devices = append(crush.Devices, ceph.CrushDevice{ID: id})
			host.Items = append(host.Items, item{id})
		}
		rack.Items, root.Items = []item{{host.ID}}, append(root.Items, item{rack.ID})
		crush.Buckets = append(crush.Buckets, host, rack)
	}
	crush.Buckets = append(crush.Buckets, root)
	var err error
	c.crush, err = json.Marshal(crush)
	return c, err
}

// Dial implements cephcluster.Dialer.
func (c *simulatedCeph) Dial(context.Context, cephcluster.Address) (cephcluster.Conn, error) {
	return c, nil
}

// Close implements cephcluster.Conn.
func (c *simulatedCeph) Close() {}

// set marks an OSD up or down. Placement groups are unclean from then on, and, when it is up, clean a second later.
func (c *simulatedCeph) set(id int, up bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.osdMap.Epoch++
	c.dump = nil
	o := &c.osdMap.OSDs[id]
	if up {
		o.Up, o.UpFrom, o.State = true, c.osdMap.Epoch, []string{"exists", "up"}
	} else {
		o.Up, o.DownAt, o.State = false, c.osdMap.Epoch, []string{"exists"}
	}
	c.clean = up
	c.unset = time.Now()
}

// MonCommand implements ceph.Commander.
func (c *simulatedCeph) MonCommand(_ context.Context, text []byte) ([]byte, string, error) {
	var command struct {
		Prefix string   `json:"prefix"`
		ID     int      `json:"id"`
		IDs    []string `json:"ids"`
	}
	if err := json.Unmarshal(text, &command); err != nil {
		return nil, "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var answer any
	switch command.Prefix {
	case "status":
		answer = c.status()
	case "osd stat":
		answer = map[string]int64{"epoch": c.osdMap.Epoch}
	case "osd dump":
		if c.dump == nil {
			var err error
			if c.dump, err = json.Marshal(&c.osdMap); err != nil {
				return nil, "", err
			}
		}
		return c.dump, "", nil
	case "osd crush dump":
		return c.crush, "", nil
	case "quorum_status":
		q := ceph.QuorumStatus{ElectionEpoch: 6, QuorumNames: []string{"a", "b", "c"}}
		for _, name := range q.QuorumNames {
			q.MonMap.Mons = append(q.MonMap.Mons, ceph.Mon{Name: name})
		}
		answer = q
	case "features":
		answer = map[string]any{"osd": []map[string]int{{"num": len(c.osdMap.OSDs)}}}
	case "mgr stat":
		answer = ceph.Manager{Epoch: 4, Available: true, Name: "a"}
	case "osd last-stat-seq":
		o := c.osdMap.OSDs[command.ID]
		return []byte(strconv.FormatUint(uint64(o.UpFrom)<<32|uint64(time.Since(c.began)/statsPeriod), 10)), "", nil //nolint:gosec // neither is negative
	case "osd ok-to-stop":
		osds := make([]int, len(command.IDs))
		for i, id := range command.IDs {
			osds[i], _ = strconv.Atoi(id)
		}
		answer = map[string]any{"ok_to_stop": true, "osds": osds}
	default:
		return nil, "", fmt.Errorf("%s: %w", command.Prefix, syscall.EINVAL)
	}
	out, err := json.Marshal(answer)
	return out, "", err
}

func (c *simulatedCeph) status() ceph.Status {
	s := ceph.Status{FSID: "00000000-0000-4000-8000-000000001000", ElectionEpoch: 6, QuorumNames: []string{"a", "b", "c"}}
	s.OSDMap.Epoch, s.MgrMap.Available = c.osdMap.Epoch, true
	unclean := 0
	if !c.clean || time.Since(c.unset) < statsPeriod {
		unclean = 3 * placementGroups / len(c.osdMap.OSDs)
	}
	s.PGMap.NumPGs = placementGroups
	s.PGMap.States = []ceph.PGStateCount{{State: "active+clean", Count: placementGroups - unclean}}
	if unclean > 0 {
		s.PGMap.States = append(s.PGMap.States, ceph.PGStateCount{State: "active+undersized+degraded", Count: unclean})
	}
	return s
}

func domainName(d int) string { return fmt.Sprintf("rack-%03d", d) }
func nodeName(d int) string   { return fmt.Sprintf("node-%03d", d) }
