package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// proof follows the numbers of the OSDs' reports, from when all OSDs are up again, until whoever sees them can know
// that what the manager says of the placement groups was reported after that: a new digest of the manager has arrived,
// and then a report of each OSD that was not in it. It is worked out here anew, since what lockkeeper knows is what is
// measured.
type proof struct {
	first, digest map[int]uint64
}

// made takes in the numbers as they are now.
func (p *proof) made(numbers map[int]uint64) bool {
	switch {
	case p.first == nil:
		p.first = numbers
		return false
	case p.digest == nil:
		if !maps.Equal(numbers, p.first) {
			p.digest = numbers
		}
		return false
	}
	for osd, number := range numbers {
		if number == p.digest[osd] {
			return false
		}
	}
	return true
}

// reportNumbers asks the monitors for the number of each OSD's last report.
func (w *world) reportNumbers(osds int) (map[int]uint64, error) {
	out := map[int]uint64{}
	for osd := range osds {
		command, err := json.Marshal(map[string]any{"prefix": "osd last-stat-seq", "id": osd, "format": "plain"})
		if err != nil {
			return nil, err
		}
		answer, _, err := w.ceph.MonCommand(command)
		if err != nil {
			return nil, fmt.Errorf("osd last-stat-seq %d: %w", osd, err)
		}
		if out[osd], err = strconv.ParseUint(strings.TrimSpace(string(answer)), 10, 64); err != nil {
			return nil, fmt.Errorf("osd last-stat-seq %d: %w", osd, err)
		}
	}
	return out, nil
}
