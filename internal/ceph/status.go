package ceph

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/quorum"
)

// Status is the answer to "status". By itself it proves nothing: a monitor without a quorum answers it at once, with
// what it last knew, and says HEALTH_OK. See Reader.
type Status struct {
	FSID string `json:"fsid"`
	// ElectionEpoch is even in a quorum, odd during an election.
	ElectionEpoch int64    `json:"election_epoch"`
	QuorumNames   []string `json:"quorum_names"`
	Health        struct {
		Status string                 `json:"status"` // HEALTH_OK, HEALTH_WARN, HEALTH_ERR
		Checks map[string]HealthCheck `json:"checks"` // that found something, by their names: SLOW_OPS, …
	} `json:"health"`
	OSDMap struct {
		Epoch int64 `json:"epoch"`
	} `json:"osdmap"`
	PGMap PGSummary `json:"pgmap"`
	// Progress is what the manager's modules say is under way, by an ID.
	Progress map[string]struct {
		Message string `json:"message"`
	} `json:"progress_events"`
	MgrMap struct {
		// Available turns false only mon_mgr_beacon_grace (30 s) after the last manager died.
		Available bool `json:"available"`
	} `json:"mgrmap"`
}

// HealthCheck is what one of Ceph's health checks found.
type HealthCheck struct {
	Summary struct {
		Message string `json:"message"`
	} `json:"summary"`
}

var osdNamed = regexp.MustCompile(`\bosd\.(\d+)\b`)

// SlowOSDs are those that the health check SLOW_OPS names: "3 slow ops, oldest one blocked for 33 sec, daemons
// [osd.0,osd.1] have slow ops." Of many it names a few.
func (s Status) SlowOSDs() map[int]bool {
	out := map[int]bool{}
	for _, m := range osdNamed.FindAllStringSubmatch(s.Health.Checks["SLOW_OPS"].Summary.Message, -1) {
		if id, err := strconv.Atoi(m[1]); err == nil {
			out[id] = true
		}
	}
	return out
}

// PGSummary counts the placement groups, as the active manager last told the monitors. It lags behind the OSD map by
// seconds, and with a dead manager for ever.
type PGSummary struct {
	States []PGStateCount `json:"pgs_by_state"`
	NumPGs int            `json:"num_pgs"`
}

// PGStateCount is how many placement groups are in one state.
type PGStateCount struct {
	State string `json:"state_name"` // "active+undersized+degraded"
	Count int    `json:"count"`
}

// Status asks the monitors how the cluster is.
func (c Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.run(ctx, statusCommand(), &s)
	return s, err
}

// QuorumStatus is the answer to "quorum_status", which is given only by a member of a quorum.
type QuorumStatus struct {
	ElectionEpoch int64    `json:"election_epoch"`
	QuorumNames   []string `json:"quorum_names"`
	MonMap        struct {
		Epoch int64  `json:"epoch"`
		FSID  string `json:"fsid"`
		// MinRelease is the oldest release that a mon may have. It rises by itself when every mon is newer.
		MinRelease int   `json:"min_mon_release"`
		Mons       []Mon `json:"mons"`
	} `json:"monmap"`
}

// Mon is one monitor of the monmap.
type Mon struct {
	Name   string `json:"name"`
	Public struct {
		Addresses []MonAddress `json:"addrvec"`
	} `json:"public_addrs"`
}

// MonAddress is where a monitor serves one of the two protocols.
type MonAddress struct {
	Type    string `json:"type"` // v1, v2
	Address string `json:"addr"` // "10.0.0.1:3300"
}

// Address is the monitor's address as mon_host has it: "[v2:10.0.0.1:3300,v1:10.0.0.1:6789]".
func (m Mon) Address() string {
	parts := make([]string, len(m.Public.Addresses))
	for i, a := range m.Public.Addresses {
		parts[i] = a.Type + ":" + a.Address
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// Find returns a monitor of the monmap.
func (q QuorumStatus) Find(name string) (Mon, bool) {
	i := slices.IndexFunc(q.MonMap.Mons, func(m Mon) bool { return m.Name == name })
	if i < 0 {
		return Mon{}, false
	}
	return q.MonMap.Mons[i], true
}

// QuorumStatus asks the monitors who of them is in quorum. Without a quorum it times out.
func (c Client) QuorumStatus(ctx context.Context) (QuorumStatus, error) {
	var q QuorumStatus
	err := c.run(ctx, quorumStatusCommand(), &q)
	return q, err
}

// Majority tells whether the quorum is more than half of the monmap.
func (q QuorumStatus) Majority() bool { return quorum.Has(len(q.MonMap.Mons), len(q.QuorumNames)) }
