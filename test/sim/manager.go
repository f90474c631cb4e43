package sim

import (
	"maps"
	"time"
)

// manager is what OSDs have told the manager, and what it has told the monitors.
type manager struct {
	alive     bool
	held      bool // it does not come back for now
	hung      bool
	starts    int
	epoch     int64
	died      time.Time
	received  map[int]believed // by PG
	reports   map[int]uint64   // by OSD, as Ceph numbers them
	published struct {
		states  map[string]int
		reports map[int]uint64
	}
}

// believed is what the leader of a PG last said of it.
type believed struct {
	state  string
	live   []int
	leader int
}

// reportAll has every OSD that is up tell the manager of the PGs that it leads.
func (w *World) reportAll() {
	for _, o := range w.osds {
		if !o.up || !o.serves() {
			continue
		}
		w.reportOf(o)
	}
}

// publish has the manager tell the monitors what it has heard.
func (w *World) publish() {
	if !w.manager.alive || !w.commits() {
		return
	}
	states := map[string]int{}
	for _, b := range w.manager.received {
		state := b.state
		if !w.osds[b.leader].up {
			state = "stale+" + state
		}
		states[state]++
	}
	w.manager.published.states, w.manager.published.reports = states, maps.Clone(w.manager.reports)
}

func (w *World) startManager() {
	w.manager.starts++
	this := w.manager.starts
	w.later(managerStarts, func() {
		p := w.podOf(w.workload("mgr", "a"))
		if w.manager.alive || w.manager.held || w.manager.starts != this || p == nil || !p.runs {
			return
		}
		w.manager.alive, w.manager.hung = true, false
		w.manager.epoch++
		w.manager.received, w.manager.reports = map[int]believed{}, map[int]uint64{}
		w.tell("ceph: a manager is active")
	})
}

// stopManager ends the process. The mons go on saying what it said last.
func (w *World) stopManager() {
	if w.manager.alive {
		w.manager.alive, w.manager.died = false, time.Now()
		w.tell("ceph: the manager is dead")
	}
}

// hangManager stops it in its tracks, or lets it go on with what it knew.
func (w *World) hangManager(on bool) {
	switch {
	case on && w.manager.alive:
		w.manager.hung = true
		w.stopManager()
	case !on && w.manager.hung && !w.manager.alive:
		w.manager.alive, w.manager.hung = true, false
	}
}

// What persons and bad luck do to the storage.

// StopManager kills the manager and keeps it from coming back, or lets it.
func (w *World) StopManager(stop bool) {
	w.happens(func() {
		if w.manager.held == stop {
			return
		}
		w.tell("the manager %s", map[bool]string{true: "fails, and stays away", false: "may come back"}[stop])
		w.manager.held = stop
		if stop {
			w.stopManager()
		} else {
			w.startManager()
		}
	})
}
