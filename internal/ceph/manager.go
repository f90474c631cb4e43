package ceph

import (
	"context"
	"fmt"
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

// PGStat asks the active manager, through the monitors, for its summary of the placement groups. It is ahead of the one in
// Status by up to a second or two. With a dead manager it times out instead of answering from memory; but a monitor without
// a quorum still relays it, so it proves nothing about the OSD map.
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
