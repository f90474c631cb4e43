package ceph

import (
	"context"
	"fmt"
	"slices"
)

// OSDMap is the answer to "osd dump": the OSDs, the pools and the flags, as of one epoch.
type OSDMap struct {
	Epoch        int64 `json:"epoch"`
	CrushVersion int64 `json:"crush_version"`
	// CrushDigest is CrushMap.Digest of the CRUSH map that belongs to it. The Reader fills it in.
	CrushDigest string   `json:"-"`
	Flags       []string `json:"flags_set"` // of the whole cluster
	// RequireRelease names the release that every OSD has at least: "pacific".
	RequireRelease string `json:"require_osd_release"`
	Pools          []Pool `json:"pools"`
	OSDs           []OSD  `json:"osds"`
	// LastInChange is when an OSD was last marked in or out, in Ceph's own form: to be compared, not read.
	LastInChange string `json:"last_in_change"`
	// CrushNodeFlags are the flags of "osd set-group" by the name of the CRUSH node: {"node-a": ["noout"]}.
	CrushNodeFlags map[string][]string `json:"crush_node_flags"`
	// DeviceClassFlags are those by the name of the device class.
	DeviceClassFlags map[string][]string `json:"device_class_flags"`
}

// Pool is what decides how many failures a pool bears. Sizes count copies, or shards for erasure coding.
type Pool struct {
	ID      int    `json:"pool"`
	Name    string `json:"pool_name"`
	Size    int    `json:"size"`
	MinSize int    `json:"min_size"`
	Rule    int    `json:"crush_rule"`
	PGNum   int    `json:"pg_num"`
}

// OSD is one OSD of the map. Its epochs are those of the map; 0: never.
type OSD struct {
	ID     int      `json:"osd"`
	Up     flag     `json:"up"`
	In     flag     `json:"in"`
	Weight float64  `json:"weight"`  // 0 (out) to 1
	UpFrom int64    `json:"up_from"` // when it last went up
	DownAt int64    `json:"down_at"` // when it last went down
	State  []string `json:"state"`   // exists, up, new, destroyed, …
	// Addrs are those at which it serves clients, and from which it speaks to the monitors.
	Addrs Addrs `json:"public_addrs"`
}

// Addrs are the addresses of one process, one for each version of the protocol.
type Addrs struct {
	Vec []Addr `json:"addrvec"`
}

// Addr is an address of a process. Its nonce tells the process from others that have the same one before or after it.
type Addr struct {
	Nonce uint32 `json:"nonce"`
}

// Same tells whether these are addresses of the same process. Without any nothing is known.
func (a Addrs) Same(b Addrs) bool {
	return slices.ContainsFunc(a.Vec, func(x Addr) bool { return slices.Contains(b.Vec, x) })
}

// Name is the OSD's name in Ceph: "osd.3".
func (o OSD) Name() string { return OSDName(o.ID) }

// OSDName is the name of an OSD in Ceph: "osd.3".
func OSDName(id int) string { return fmt.Sprintf("osd.%d", id) }

// Is tells whether the OSD is in a state: "exists", "new", "destroyed".
func (o OSD) Is(state string) bool { return slices.Contains(o.State, state) }

// Serving tells whether the OSD is expected to serve: it exists, was up at least once, and its disk was not given up
// for replacement.
func (o OSD) Serving() bool {
	return o.Is("exists") && !o.Is("destroyed") && (bool(o.Up) || o.UpFrom > 0)
}

// ChangeEpoch is the epoch at which an OSD last went up or down, 0 when none ever did.
//
// Marking OSDs in or out leaves no epoch in the map, so two maps with the same ChangeEpoch may still place data
// differently. Who must notice that compares them: see pghealth.
func (m *OSDMap) ChangeEpoch() int64 {
	var newest int64
	for i := range m.OSDs {
		newest = max(newest, m.OSDs[i].UpFrom, m.OSDs[i].DownAt)
	}
	return newest
}

// Noout lists, sorted, the names of the CRUSH nodes and of the OSDs that carry a noout flag of their own.
func (m *OSDMap) Noout() []string {
	var names []string
	for name, flags := range m.CrushNodeFlags {
		if slices.Contains(flags, "noout") {
			names = append(names, name)
		}
	}
	for i := range m.OSDs {
		if m.OSDs[i].Is("noout") {
			names = append(names, m.OSDs[i].Name())
		}
	}
	slices.Sort(names)
	return names
}

// Flagged lists, sorted, what carries a flag: "the cluster", the names of CRUSH nodes, device classes and OSDs.
func (m *OSDMap) Flagged(flag string) []string {
	var names []string
	if slices.Contains(m.Flags, flag) {
		names = append(names, "the cluster")
	}
	for _, groups := range []map[string][]string{m.CrushNodeFlags, m.DeviceClassFlags} {
		for name, flags := range groups {
			if slices.Contains(flags, flag) {
				names = append(names, name)
			}
		}
	}
	for i := range m.OSDs {
		if m.OSDs[i].Is(flag) {
			names = append(names, m.OSDs[i].Name())
		}
	}
	slices.Sort(names)
	return names
}

// flag is a truth that Ceph writes as 0 or 1.
type flag bool

func (f *flag) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case "0", "false":
		*f = false
	case "1", "true":
		*f = true
	default:
		return fmt.Errorf("%s is neither 0 nor 1", text)
	}
	return nil
}

// OSDDump asks the monitors for the OSD map. It takes a quorum to answer. About 2 kB of JSON for each OSD.
func (c Client) OSDDump(ctx context.Context) (*OSDMap, error) {
	m := &OSDMap{}
	if err := c.run(ctx, osdDumpCommand(), m); err != nil {
		return nil, err
	}
	return m, nil
}

// OSDEpoch asks the monitors for the epoch of the OSD map alone. As with OSDDump, it takes a quorum to answer.
func (c Client) OSDEpoch(ctx context.Context) (int64, error) {
	var stat struct {
		Epoch int64 `json:"epoch"`
	}
	err := c.run(ctx, osdStatCommand(), &stat)
	return stat.Epoch, err
}
