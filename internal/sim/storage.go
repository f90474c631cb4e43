package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

const (
	pgNum   = 16
	size    = 3
	minSize = 2
)

// cephCluster is the storage: what is, and what the manager believes.
type cephCluster struct {
	epoch     int64
	osds      []*osd
	pgs       []*pg
	noout     map[string]owner // by host
	flagged   time.Time        // when a person last set it
	lastInOut time.Time
	hurt      time.Time // when copies were last lost, or their places changed
	crashed   time.Time // when a daemon last went that nobody had evicted

	quorum
	manager manager
}

type osd struct {
	id         int
	zone, host string
	running    bool // its process
	booted     bool // the mons know of its present life; before, it serves nobody
	up, in     bool
	upFrom     int64
	downAt     int64
	since      time.Time // of up
	reports    uint32    // in its present life
	evicted    bool      // its present absence was granted by the eviction API
	device     string    // of its data
	pod        string    // in which it last started
	dead       bool      // its disk
	hung       bool      // its process is stopped, and does not know
	hangs      int       // how often it was
}

func (o *osd) name() string { return fmt.Sprintf("osd.%d", o.id) }
func (o *osd) serves() bool { return o.running && o.booted && !o.hung }

func (o *osd) workload() *workload {
	return &workload{kind: "osd", id: fmt.Sprint(o.id), pinned: o.host, zone: o.zone, replicas: 1}
}

// pg is a placement group.
type pg struct {
	id     int
	acting []int        // where its copies belong
	whole  map[int]bool // OSDs with all of its data
}

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

func (w *World) initCeph() {
	w.epoch, w.election = 100, 6
	w.noout = map[string]owner{}
	w.manager = manager{alive: true, epoch: 4, received: map[int]believed{}, reports: map[int]uint64{}}
	for id := range pgNum {
		w.pgs = append(w.pgs, &pg{id: id, whole: map[int]bool{}})
	}
}

func (w *World) addOSD(n *node) *osd {
	o := &osd{id: len(w.osds), zone: n.zone, host: n.name, running: true, booted: true, up: true, in: true, upFrom: int64(10 + len(w.osds)), device: w.nextDevice(n), since: w.started.Add(-time.Hour), reports: 50}
	w.osds = append(w.osds, o)
	return o
}

// settleCeph makes all copies whole and the manager know it.
func (w *World) settleCeph() {
	w.place()
	for _, m := range w.mons {
		m.in = true
	}
	for _, p := range w.pgs {
		for _, id := range p.acting {
			p.whole[id] = true
		}
	}
	w.reportAll()
	w.publish()
}

// place decides where the copies of each PG belong: on one OSD of each zone that has any that is in.
func (w *World) place() {
	in := make([][]int, len(Zones))
	for i, zone := range Zones {
		for _, o := range w.osds {
			if o.zone == zone && o.in {
				in[i] = append(in[i], o.id)
			}
		}
	}
	for _, p := range w.pgs {
		p.acting = nil
		for i := range Zones {
			if n := len(in[i]); n > 0 {
				p.acting = append(p.acting, in[i][(p.id>>i)%n])
			}
		}
	}
}

// live are the whole copies that can be read.
func (w *World) live(p *pg) []int {
	var out []int
	for _, o := range w.osds {
		if o.up && o.serves() && p.whole[o.id] {
			out = append(out, o.id)
		}
	}
	return out
}

func (w *World) stateOf(p *pg) string {
	acting, live := p.acting, w.live(p)
	up := 0
	for _, id := range acting {
		if w.osds[id].up {
			up++
		}
	}
	whole := len(acting) == size && !slices.ContainsFunc(acting, func(id int) bool { return !slices.Contains(live, id) })
	switch {
	case whole:
		return "active+clean"
	case len(live) < minSize:
		return "undersized+degraded+peered"
	case up < size:
		return "active+undersized+degraded"
	default:
		return "active+recovering+degraded"
	}
}

// clean is the truth about the data.
func (w *World) clean() bool {
	return !slices.ContainsFunc(w.pgs, func(p *pg) bool { return w.stateOf(p) != "active+clean" })
}

// stopOSD ends the process. The map shows it a little later; until then the manager says what it said before.
func (w *World) stopOSD(o *osd) {
	if !o.running {
		return
	}
	for _, p := range w.pgs {
		// Clients go on writing to the others, if those are enough.
		if live := w.live(p); p.whole[o.id] && len(live) > minSize {
			delete(p.whole, o.id)
		}
	}
	o.running, o.booted, w.hurt = false, false, time.Now()
	w.later(osdDownAfter, func() { w.markDown(o) })
	w.broadcast()
}

// monsRetry is how often what needs the mons is tried again while they cannot commit.
const monsRetry = 100 * time.Millisecond

func (w *World) markDown(o *osd) {
	switch {
	case !o.up || o.serves():
		return
	case !w.commits():
		w.later(monsRetry, func() { w.markDown(o) })
		return
	}
	w.epoch++
	o.up, o.downAt, o.since = false, w.epoch, time.Now()
	if o.hung {
		w.crashed = time.Now() // nobody could know before
	}
	w.tell("ceph: %s is down (epoch %d)", o.name(), w.epoch)
	w.hurt = time.Now()
	w.broadcast()
	w.later(downOutAfter, func() { w.markOut(o) })
}

// hang stops an OSD in its tracks, or lets it go on. The others notice when their heartbeats fail, and the mons believe them
// when those on two other hosts say so; otherwise they wait until they miss it themselves.
func (w *World) hang(o *osd, on bool) {
	if o.hung == on {
		return
	}
	o.hung = on
	o.hangs++
	w.crashed, w.hurt = time.Now(), time.Now()
	if !on {
		if o.running {
			w.later(time.Second, func() { w.markUp(o) })
		}
		return
	}
	this := o.hangs
	w.later(hangNoticed, func() {
		if o.hangs == this && w.reporters(o) >= 2 {
			w.markDown(o)
		}
	})
	w.later(hangMissed, func() {
		if o.hangs == this {
			w.markDown(o)
		}
	})
}

// reporters counts the other hosts with OSDs that serve.
func (w *World) reporters(of *osd) int {
	hosts := map[string]bool{}
	for _, o := range w.osds {
		if o.host != of.host && o.up && o.serves() {
			hosts[o.host] = true
		}
	}
	return len(hosts)
}

func (w *World) markOut(o *osd) {
	if o.up || !o.in || time.Since(o.since) < downOutAfter {
		return
	}
	if w.noout[o.host] != "" || w.noout[o.name()] != "" || !w.commits() {
		w.later(time.Second, func() { w.markOut(o) })
		return
	}
	w.epoch++
	o.in, w.lastInOut, w.hurt = false, time.Now(), time.Now()
	w.place()
	w.tell("ceph: %s is out", o.name())
	w.broadcast()
}

// startOSD tells whether it runs.
func (w *World) startOSD(o *osd) bool {
	if o.dead {
		return false
	}
	if o.running {
		return true
	}
	o.running, o.booted, o.hung = true, false, false
	o.hangs++
	w.later(osdBoots, func() { w.markUp(o) })
	return true
}

func (w *World) markUp(o *osd) {
	switch {
	case !o.running || o.hung || o.up && o.booted:
		return
	case !w.commits():
		w.later(monsRetry, func() { w.markUp(o) })
		return
	}
	w.markDown(o) // its last life, if nobody noticed the end of it
	w.epoch++
	o.booted = true
	o.up, o.upFrom, o.since, o.reports, o.evicted = true, w.epoch, time.Now(), 1, false
	if !o.in {
		o.in, w.lastInOut = true, time.Now()
		w.place()
	}
	w.hurt = time.Now()
	w.tell("ceph: %s is up (epoch %d)", o.name(), w.epoch)
	w.broadcast()
}

// tick lets OSDs report, the manager publish, and copies recover.
func (w *World) tick() {
	for w.end.Err() == nil {
		time.Sleep(statsPeriod / 2)
		w.happens(func() { w.recover(); w.reportAll() })
		time.Sleep(statsPeriod / 2)
		w.happens(func() { w.recover(); w.publish() })
	}
}

func (w *World) recover() {
	changed := false
	for _, p := range w.pgs {
		if !slices.ContainsFunc(p.acting, func(id int) bool { return !p.whole[id] }) && len(p.whole) == len(p.acting) || len(w.live(p)) == 0 {
			continue
		}
		for _, id := range p.acting {
			if o := w.osds[id]; o.up && o.serves() && !p.whole[id] && time.Since(o.since) >= recovers {
				p.whole[id], changed = true, true
			}
		}
		if w.stateOf(p) == "active+clean" {
			maps.DeleteFunc(p.whole, func(id int, _ bool) bool { return !slices.Contains(p.acting, id) })
		}
	}
	if changed && w.clean() {
		w.tell("ceph: all data is whole")
	}
}

// reportAll has every OSD that is up tell the manager of the PGs that it leads.
func (w *World) reportAll() {
	for _, o := range w.osds {
		if !o.up || !o.serves() {
			continue
		}
		o.reports++
		if !w.manager.alive {
			continue
		}
		w.manager.reports[o.id] = uint64(o.upFrom)<<32 | uint64(o.reports)
		for _, p := range w.pgs {
			if live := w.live(p); len(live) > 0 && live[0] == o.id {
				w.manager.received[p.id] = believed{state: w.stateOf(p), live: live, leader: o.id}
			}
		}
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

// MarkOut is an administrator who gives an OSD up, or takes it in again.
func (w *World) MarkOut(osd string, out bool) {
	w.happens(func() {
		o := w.osdOf(w.find(osd))
		if o.in != out {
			return
		}
		w.tell("a person marks %s %s", osd, map[bool]string{true: "out", false: "in"}[out])
		w.epoch++
		o.in, w.lastInOut, w.hurt = !out, time.Now(), time.Now()
		if !out && !o.up {
			w.later(downOutAfter, func() { w.markOut(o) })
		}
		w.place()
		w.broadcast()
	})
}

func (w *World) startManager() {
	w.manager.starts++
	this := w.manager.starts
	w.later(managerStarts, func() {
		p := w.podOf(w.workload("mgr", "a"))
		if w.manager.alive || w.manager.held || w.manager.starts != this || p == nil || p.state != storage.PodReady {
			return
		}
		w.manager.alive, w.manager.hung = true, false
		w.manager.epoch++
		w.manager.received, w.manager.reports = map[int]believed{}, map[int]uint64{}
		w.tell("ceph: a manager is active")
	})
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

// PersonSetsNoout sets or unsets noout on a host, as an administrator would.
func (w *World) PersonSetsNoout(host string, on bool) {
	w.happens(func() {
		w.tell("a person switches noout on %s: %t", host, on)
		w.epoch++
		if on {
			w.noout[host], w.flagged = byPerson, time.Now()
		} else {
			delete(w.noout, host)
		}
		w.broadcast()
	})
}

// OSDs is how many there are.
func (w *World) OSDs() int { return len(w.osds) }
