package sim

import (
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
	noout     map[string]flagOwner // by host
	lastInOut time.Time
	hurt      time.Time // when copies were last lost, or their places changed
	crashed   time.Time // when an OSD last went that nobody had evicted

	quorate  bool
	election int64
	lost     time.Time // since when there is no quorum

	manager manager
}

type flagOwner string

const (
	byPerson flagOwner = "a person"
	byUs     flagOwner = "lockkeeper"
)

type osd struct {
	id         int
	zone, host string
	running    bool // its process
	up, in     bool
	upFrom     int64
	downAt     int64
	since      time.Time // of up
	reports    uint32    // in its present life
	evicted    bool      // its present absence was granted by the eviction API
	dead       bool      // its disk
}

// pg is a placement group.
type pg struct {
	id    int
	whole map[int]bool // OSDs with all of its data
}

// manager is what OSDs have told the manager, and what it has told the monitors.
type manager struct {
	alive     bool
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
	w.epoch, w.quorate, w.election = 100, true, 6
	w.noout = map[string]flagOwner{}
	w.manager = manager{alive: true, epoch: 4, received: map[int]believed{}, reports: map[int]uint64{}}
	for id := range pgNum {
		w.pgs = append(w.pgs, &pg{id: id, whole: map[int]bool{}})
	}
}

func (w *World) addOSD(n *node) *osd {
	o := &osd{id: len(w.osds), zone: n.zone, host: n.name, running: true, up: true, in: true, upFrom: int64(10 + len(w.osds)), since: w.started.Add(-time.Hour), reports: 50}
	w.osds = append(w.osds, o)
	return o
}

// settleCeph makes all copies whole and the manager know it.
func (w *World) settleCeph() {
	for _, p := range w.pgs {
		for _, id := range w.acting(p) {
			p.whole[id] = true
		}
	}
	w.reportAll()
	w.publish()
}

// acting is where a PG's copies belong: one OSD of each zone that has any that is in.
func (w *World) acting(p *pg) []int {
	var out []int
	for i, zone := range Zones {
		var in []int
		for _, o := range w.osds {
			if o.zone == zone && o.in {
				in = append(in, o.id)
			}
		}
		if len(in) > 0 {
			out = append(out, in[(p.id>>i)%len(in)])
		}
	}
	return out
}

// live are the whole copies that can be read.
func (w *World) live(p *pg) []int {
	var out []int
	for _, o := range w.osds {
		if o.up && o.running && p.whole[o.id] {
			out = append(out, o.id)
		}
	}
	return out
}

func (w *World) stateOf(p *pg) string {
	acting, live := w.acting(p), w.live(p)
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
	o.running, w.hurt = false, time.Now()
	w.later(osdDownAfter, func() {
		if o.running || !o.up {
			return
		}
		w.epoch++
		o.up, o.downAt, o.since = false, w.epoch, time.Now()
		w.tell("ceph: osd.%d is down (epoch %d)", o.id, w.epoch)
		w.hurt = time.Now()
		w.broadcast()
		w.later(downOutAfter, func() { w.markOut(o) })
	})
	w.broadcast()
}

func (w *World) markOut(o *osd) {
	if o.up || !o.in || time.Since(o.since) < downOutAfter {
		return
	}
	if _, kept := w.noout[o.host]; kept {
		w.later(time.Second, func() { w.markOut(o) })
		return
	}
	w.epoch++
	o.in, w.lastInOut, w.hurt = false, time.Now(), time.Now()
	w.tell("ceph: osd.%d is out", o.id)
	w.broadcast()
}

func (w *World) startOSD(o *osd) {
	if o.dead || o.running {
		return
	}
	o.running = true
	w.later(osdBoots, func() {
		if !o.running || o.up {
			return
		}
		w.epoch++
		o.up, o.upFrom, o.since, o.reports, o.evicted = true, w.epoch, time.Now(), 1, false
		if !o.in {
			o.in, w.lastInOut = true, time.Now()
		}
		w.hurt = time.Now()
		w.tell("ceph: osd.%d is up (epoch %d)", o.id, w.epoch)
		w.broadcast()
	})
}

// tick lets OSDs report, the manager publish, and copies recover.
func (w *World) tick() {
	for w.end.Err() == nil {
		time.Sleep(statsPeriod / 2)
		w.mu.Lock()
		w.recover()
		w.reportAll()
		w.mu.Unlock()
		time.Sleep(statsPeriod / 2)
		w.mu.Lock()
		w.recover()
		w.publish()
		w.checkTruth()
		w.mu.Unlock()
	}
}

func (w *World) recover() {
	changed := false
	for _, p := range w.pgs {
		if len(w.live(p)) == 0 {
			continue
		}
		for _, id := range w.acting(p) {
			if o := w.osds[id]; o.up && o.running && !p.whole[id] && time.Since(o.since) >= recovers {
				p.whole[id], changed = true, true
			}
		}
		if w.stateOf(p) == "active+clean" {
			acting := w.acting(p)
			maps.DeleteFunc(p.whole, func(id int, _ bool) bool { return !slices.Contains(acting, id) })
		}
	}
	if changed && w.clean() {
		w.tell("ceph: all data is whole")
	}
}

// reportAll has every OSD that is up tell the manager of the PGs that it leads.
func (w *World) reportAll() {
	for _, o := range w.osds {
		if !o.up || !o.running {
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
	if !w.manager.alive {
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

// What persons and bad luck do to the storage.

// KillOSD crashes an OSD. Its container comes back by itself after a moment.
func (w *World) KillOSD(id int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell("osd.%d crashes", id)
	w.crash(w.osds[id], 2*time.Second)
}

func (w *World) crash(o *osd, back time.Duration) {
	p := w.podOf(o.id)
	if !o.running || p == nil || !p.bound {
		return
	}
	w.crashed = time.Now()
	p.state = storage.PodNotReady
	w.stopOSD(o)
	w.kubeChanged()
	if back > 0 {
		w.later(back, func() { w.run(p) })
	}
}

// BreakDisk ends an OSD for good. Its pod crashes again and again.
func (w *World) BreakDisk(id int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell("the disk of osd.%d breaks", id)
	w.osds[id].dead = true
	w.crash(w.osds[id], 0)
}

// StopManager kills the manager, or starts another one.
func (w *World) StopManager(stop bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.manager.alive == !stop {
		return
	}
	w.tell("the manager %s", map[bool]string{true: "dies", false: "is back"}[stop])
	w.manager.alive = !stop
	w.manager.epoch++
	w.manager.died = time.Now()
	if !stop {
		w.manager.received, w.manager.reports = map[int]believed{}, map[int]uint64{}
	}
}

// LoseQuorum stops the monitors from agreeing, or lets them.
func (w *World) LoseQuorum(lose bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.quorate == !lose {
		return
	}
	w.tell("the monitors %s", map[bool]string{true: "lose their quorum", false: "agree again"}[lose])
	w.quorate, w.lost = !lose, time.Now()
	w.election += 2
	w.broadcast()
}

// PersonSetsNoout sets or unsets noout on a host, as an administrator would.
func (w *World) PersonSetsNoout(host string, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell("a person switches noout on %s: %t", host, on)
	w.epoch++
	if on {
		w.noout[host] = byPerson
	} else {
		delete(w.noout, host)
	}
	w.broadcast()
}

// OSDs is how many there are.
func (w *World) OSDs() int { return len(w.osds) }
