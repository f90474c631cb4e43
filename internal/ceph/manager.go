package ceph

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Manager is which manager is active. Epoch, of the map of managers, changes with every change of it, so that a manager
// that was restarted under the same name is told apart.
type Manager struct {
	Epoch     int64  `json:"epoch"`
	Available bool   `json:"available"`
	Name      string `json:"active_name"`
}

// Manager asks the monitors which manager is active.
func (c Client) Manager(ctx context.Context) (Manager, error) {
	var m Manager
	err := c.run(ctx, mgrStatCommand(), &m)
	return m, err
}

// PGStat asks the active manager, through the monitors, for its summary of the placement groups. It is newer than the one
// in Status by up to mgr_tick_period (2 s). Without an active manager it times out.
func (c Client) PGStat(ctx context.Context) (PGSummary, error) {
	var answer struct {
		Ready   bool `json:"pg_ready"`
		Summary struct {
			States []struct {
				Name string `json:"name"`
				Num  int    `json:"num"`
			} `json:"num_pg_by_state"`
			NumPGs int `json:"num_pgs"`
		} `json:"pg_summary"`
	}
	if err := c.run(ctx, pgStatCommand(), &answer); err != nil {
		return PGSummary{}, err
	}
	if !answer.Ready {
		return PGSummary{}, fmt.Errorf("ceph pg stat: the manager has not heard from the OSDs yet")
	}
	summary := PGSummary{NumPGs: answer.Summary.NumPGs}
	for _, s := range answer.Summary.States {
		summary.States = append(summary.States, PGStateCount{State: s.Name, Count: s.Num})
	}
	return summary, nil
}

// LastStatSeq asks the monitors for the sequence number of the last report of an OSD that is part of the PGSummary they
// hold. The upper half of it is the epoch at which the OSD went up, the lower half counts its reports. 0: none yet.
//
// The monitors get it from the manager in one piece with the summary, so a Status read afterwards includes that report.
func (c Client) LastStatSeq(ctx context.Context, osd int) (uint64, error) {
	command := lastStatSeqCommand{Prefix: "osd last-stat-seq", ID: osd}
	output, err := c.send(ctx, command)
	if err != nil {
		return 0, err
	}
	seq, err := strconv.ParseUint(strings.TrimSpace(string(output)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("ceph osd last-stat-seq %d: the answer is not a number: %w", osd, err)
	}
	return seq, nil
}
