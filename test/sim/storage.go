package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/upgrade"
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
	noout     map[string]owner // by node, whatever its CRUSH host is called, or by OSD
	flagged   time.Time        // when a person last set it
	hosts     crushHosts
	lastInOut time.Time
	hurt      time.Time // when copies were last lost, or their places changed
	crashed   time.Time // when a daemon last went that nobody had evicted, or that no budget held back

	flags   []string // of the cluster, as persons set them
	flushes int      // how often OSDs were told to report
	slow    string   // the OSD that has slow operations; "": none

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
	backIn     time.Time // when a person last marked it in
	device     string    // of its data
	pod        string    // in which it last started
	dead       bool      // its disk
	hung       bool      // its process is stopped, and does not know
	hungAt     time.Time // since when
	hangs      int       // how often it was
	cutAt      time.Time // since when it has no session with a monitor, and will not get one; zero: it has
	leftUntil  time.Time // a monitor keeps the session of an earlier life until then
	nonce      uint32    // of its process; each has another
	upNonce    uint32    // of the one that last came up
	leftNonce  uint32    // of the one whose session a monitor keeps

	version, starting upgrade.Version // of its program: when it last came up, and the one that starts
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
	moved  map[int]int  // OSD → the one that has its copy instead, because a person said so (pg-upmap)
	agreed []int64      // the lives of its members, 0 for one that is down, when they last agreed on who has what

	// standsStill: they do not agree, since its leader has lost the monitors, who would have to note that it is alive.
	standsStill bool
}

func (w *World) initCeph() {
	w.epoch, w.election = 100, 6
	w.noout, w.held = map[string]owner{}, map[string]time.Time{}
	w.hosts = crushHosts{byNode: map[string]*crushHost{}, flagged: map[string]time.Time{}, claimed: map[string]bool{}}
	w.manager = manager{alive: true, epoch: 4, received: map[int]believed{}, reports: map[int]uint64{}}
	for id := range pgNum {
		w.pgs = append(w.pgs, &pg{id: id, whole: map[int]bool{}})
	}
}

func (w *World) addOSD(n *node) *osd {
	o := &osd{
		id: len(w.osds), zone: n.zone, host: n.name, running: true, booted: true, up: true, in: true,
		upFrom: int64(10 + len(w.osds)), device: w.nextDevice(n), since: w.started.Add(-time.Hour), reports: 50,
		version: FirstVersion, starting: FirstVersion,
	}
	w.osds = append(w.osds, o)
	if w.hosts.byNode[n.name] == nil {
		w.addHost(n.name)
	}
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

// domainOf is where no two OSDs may be away that are not stopped together: the zone, or the node where OSDs are the
// failure domains.
func (w *World) domainOf(o *osd) string {
	if w.opts.ByOSD > 0 {
		return o.host
	}
	return o.zone
}

func (w *World) domainOfNode(n *node) string {
	if w.opts.ByOSD > 0 {
		return n.name
	}
	return n.zone
}

// domainNamed is the domain that lockkeeper calls by the name of a failure domain, or of its label's value.
func (w *World) domainNamed(name string) string {
	for _, o := range w.osds {
		if w.opts.ByOSD > 0 && (o.name() == name || fmt.Sprint(o.id) == name) {
			return o.host
		}
	}
	return name
}

// placeByOSD puts the copies of each PG on OSDs that are in.
func (w *World) placeByOSD() {
	var in []int
	for _, o := range w.osds {
		if o.in {
			in = append(in, o.id)
		}
	}
	for _, p := range w.pgs {
		p.acting = nil
		for i := range min(size, len(in)) {
			at := p.id + i*w.opts.ByOSD
			for slices.Contains(p.acting, in[at%len(in)]) { // no OSD has two copies
				at++
			}
			p.acting = append(p.acting, in[at%len(in)])
		}
	}
}

// place decides where the copies of each PG belong: on one OSD of each zone that has any that is in.
func (w *World) place() {
	defer w.peer()
	if w.opts.ByOSD > 0 {
		w.placeByOSD()
		return
	}
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
		for i, from := range p.acting {
			if to, ok := p.moved[from]; ok && w.osds[to].in && !slices.Contains(p.acting, to) {
				p.acting[i] = to
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

// seemLive are the copies that those who serve take for live: of an OSD that hangs they do not know yet.
func (w *World) seemLive(p *pg) []int {
	out := make([]int, 0, len(p.acting)+1)
	for _, o := range w.osds {
		if o.up && o.running && o.booted && p.whole[o.id] {
			out = append(out, o.id)
		}
	}
	return out
}

func (w *World) stateOf(p *pg) string { return w.stateWith(p, w.live(p)) }

func (w *World) stateWith(p *pg, live []int) string {
	acting := p.acting
	up := 0
	for _, id := range acting {
		if w.osds[id].up {
			up++
		}
	}
	if p.standsStill {
		return "peering"
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

// tick lets OSDs report, the manager publish, and copies recover.
func (w *World) tick() {
	var reported time.Time
	for w.end.Err() == nil {
		time.Sleep(statsPeriod / 2)
		w.happens(func() {
			w.recover()
			if time.Since(reported) >= w.reportPeriod() {
				w.reportAll()
				reported = time.Now()
			}
		})
		time.Sleep(statsPeriod / 2)
		w.happens(func() { w.recover(); w.publish() })
	}
}

// peer has the members of each PG agree on who has what, whenever others are members, or live anew. A leader that has
// lost the monitors cannot lead them to it: nobody reads or writes until it is restarted, or goes.
func (w *World) peer() {
	for _, p := range w.pgs {
		lives := make([]int64, 0, len(p.acting))
		for _, id := range p.acting {
			life := int64(0)
			if o := w.osds[id]; o.up {
				life = o.upFrom
			}
			lives = append(lives, life)
		}
		if !p.standsStill && slices.Equal(lives, p.agreed) {
			continue
		}
		leader := w.leaderOf(p, w.seemLive(p))
		had := p.standsStill
		p.standsStill = leader >= 0 && !w.osds[leader].cutAt.IsZero()
		switch {
		case p.standsStill && !had:
			w.tell("ceph: PG 1.%x stands still: osd.%d leads it, and has lost the monitors", p.id, leader)
		case had && !p.standsStill:
			w.tell("ceph: PG 1.%x is led again", p.id)
		}
		if p.standsStill != had {
			w.hurt = time.Now()
		}
		if !p.standsStill {
			p.agreed = lives
		}
	}
}

func (w *World) recover() {
	if w.hasFlag("norecover") {
		return
	}
	changed := false
	for _, p := range w.pgs {
		if p.standsStill {
			continue
		}
		if !slices.ContainsFunc(p.acting, func(id int) bool { return !p.whole[id] }) && len(p.whole) == len(p.acting) ||
			len(w.live(p)) == 0 {
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

// PersonSetsNoout sets or unsets noout on a host, as an administrator would.
func (w *World) PersonSetsNoout(host string, on bool) {
	w.happens(func() {
		w.tell("a person switches noout on %s: %t", host, on)
		w.epoch++
		if on {
			w.noout[host], w.flagged = byPerson, time.Now()
			w.hosts.flagged[host], w.hosts.claimed[host] = time.Now(), false
		} else {
			delete(w.noout, host)
		}
		w.broadcast()
	})
}

// OSDs is how many there are.
func (w *World) OSDs() int { return len(w.osds) }
