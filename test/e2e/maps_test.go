package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// osdMap is one of the maps of its OSDs that Ceph has made. It keeps hundreds, and makes one whenever an OSD goes or
// comes.
type osdMap struct {
	Epoch int
	OSDs  []struct{ OSD, Up, In int } `json:"osds"`
}

func (w *world) lastMap() (epoch int, err error) {
	var m osdMap
	err = w.ask(&m, "osd dump")
	return m.Epoch, err
}

// oneZoneAtATime checks, in every map since the scenario began, that no OSDs of two zones were away at once. What was
// out is not counted: Ceph had made other copies of it.
func (w *world) oneZoneAtATime() error {
	zones, err := w.zones()
	if err != nil {
		return err
	}
	maps, err := w.maps()
	if err != nil {
		return err
	}
	for _, m := range maps {
		var away []string
		for _, o := range m.OSDs {
			if zone := zones[o.OSD]; o.Up == 0 && o.In == 1 && !slices.Contains(away, zone) {
				away = append(away, zone)
			}
		}
		if len(away) > 1 {
			return fmt.Errorf("OSDs of %s were down at once, in map %d: %+v", strings.Join(away, " and "), m.Epoch, m.OSDs)
		}
	}
	return nil
}

// maps are those since the scenario began.
func (w *world) maps() ([]osdMap, error) {
	last, err := w.lastMap()
	if err != nil {
		return nil, err
	}
	var ask strings.Builder // of one process, since Ceph's command takes half a second to start
	for epoch := w.firstMap; epoch <= last; epoch++ {
		fmt.Fprintln(&ask, "osd dump", epoch)
	}
	c := w.command("ceph", "-f", "json")
	c.Stdin = strings.NewReader(ask.String())
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("ceph osd dump %d to %d: %w", w.firstMap, last, err)
	}
	var maps []osdMap
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var m osdMap
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("ceph osd dump: %w", err)
		}
		maps = append(maps, m)
	}
	if len(maps) != last-w.firstMap+1 {
		return nil, fmt.Errorf("ceph has %d of the maps %d to %d", len(maps), w.firstMap, last)
	}
	return maps, nil
}

// zones are those of the OSDs.
func (w *world) zones() (map[int]string, error) {
	var tree struct {
		Nodes []struct {
			ID         int
			Type, Name string
			Children   []int
		}
	}
	if err := w.ask(&tree, "osd tree"); err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, n := range tree.Nodes {
		children[n.ID] = n.Children
	}
	zones := map[int]string{}
	for _, n := range tree.Nodes {
		if n.Type != "zone" {
			continue
		}
		for below := n.Children; len(below) > 0; below = below[1:] {
			if below[0] >= 0 {
				zones[below[0]] = n.Name
			}
			below = append(below, children[below[0]]...)
		}
	}
	return zones, nil
}
