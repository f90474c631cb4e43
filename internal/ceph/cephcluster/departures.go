package cephcluster

import (
	"maps"
	"sync"
)

// departures remembers View.Departed from one look to the next, beside the keeper who does so, too: a keeper that was
// terminated in the wrong moment is followed by one that has not seen who left.
type departures struct {
	mu    sync.Mutex
	known map[string]int64
}

// with is what the asker knows and what is known here.
func (d *departures) with(asked map[string]int64) map[string]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := maps.Clone(d.known)
	if out == nil {
		out = map[string]int64{}
	}
	for name, epoch := range asked {
		out[name] = max(out[name], epoch)
	}
	return out
}

// become takes note of what has become of those that were known before a look: who is not among those after it is back.
// It returns after. What another look found meanwhile stays.
func (d *departures) become(before, after map[string]int64) map[string]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, epoch := range before {
		if d.known[name] <= epoch {
			delete(d.known, name)
		}
	}
	if d.known == nil {
		d.known = map[string]int64{}
	}
	for name, epoch := range after {
		d.known[name] = max(d.known[name], epoch)
	}
	return after
}
