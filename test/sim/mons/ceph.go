package mons

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/cephmon/monspec"
	"github.com/lockkeeper/lockkeeper/internal/upgrade"
)

// This file is the mons themselves: their stores, the monmap, elections and commands. Periods are those of mons with
// short ones (facts seen with Ceph 16 and 20).

const (
	noticed  = 5 * time.Second        // how long it takes until the others agree without a mon that died
	agreed   = time.Second            // how long an election takes that was called for
	answered = 30 * time.Second       // how long a command is tried without a quorum
	often    = 100 * time.Millisecond // how often who waits for a quorum looks
)

type quorum struct {
	monmap   []member
	stores   map[string]*store // by place
	down     map[string]bool   // mons whose processes hang, or die again and again
	shy      bool              // newcomers never come into quorum
	living   []string          // as of the last pass
	named    []string          // as quorum_status says
	electing time.Time         // until when nothing is committed
	news     time.Time         // when somebody died or came back
	told     time.Time         // when it was answered last who has proved to live
	lost     time.Time         // since when there is no majority; zero: there is one
	promises []promise
	late     []belated
}

// promise is a yes of Ceph's to something that may follow any moment.
type promise struct {
	leaves string // for good
	stops  string // for a while; "" both: one joins
	until  time.Time
}

func newQuorum() quorum { return quorum{stores: map[string]*store{}, down: map[string]bool{}} }

type member struct {
	name, ip string
	since    time.Time // zero: from the beginning
}

// store is what a mon has on its disk.
type store struct {
	mon     string
	joined  bool            // it was in the monmap with it
	version upgrade.Version // of the last program that came into quorum with it
}

func (w *World) member(name string) (member, bool) {
	i := slices.IndexFunc(w.monmap, func(m member) bool { return m.name == name })
	if i < 0 {
		return member{}, false
	}
	return w.monmap[i], true
}

func majority(n int) int { return n/2 + 1 }

func (w *World) alive(name string) bool {
	if _, there := w.member(name); !there || w.down[name] {
		return false
	}
	for _, p := range w.pods {
		if p.mon() == name && !p.ready.IsZero() && !p.shy && !time.Now().Before(p.ready) && !w.deadNodes[p.Spec.NodeName] {
			return true
		}
	}
	return false
}

// alives are the mons of the monmap that live.
func (w *World) alives() (names []string) {
	for _, name := range w.names() {
		if w.alive(name) {
			names = append(names, name)
		}
	}
	return names
}

func (w *World) agrees() bool { return len(w.alives()) >= majority(len(w.monmap)) }

func (w *World) commits() bool { return w.agrees() && !time.Now().Before(w.electing) }

// observe notices who has died or come back, and has the others elect.
func (w *World) observe() {
	now, living := time.Now(), w.alives()
	if !slices.Equal(living, w.living) {
		takes := agreed
		for _, name := range w.living {
			if _, there := w.member(name); there && !slices.Contains(living, name) {
				takes = noticed
			}
		}
		if w.living == nil {
			takes = 0
		}
		w.elect(takes)
		w.living, w.news = living, now
		for _, name := range living {
			if p := w.podOf(name); p.DeletionTimestamp == nil {
				delete(w.evicted, name)
			}
		}
		w.tell("living: %v of %v", living, w.names())
		if w.opts.News != nil {
			go w.opts.News("the mons that live are " + strings.Join(living, ", "))
		}
	}
	switch {
	case w.agrees():
		w.lost = time.Time{}
	case w.lost.IsZero():
		w.lost = now
		w.wake(lostFor + time.Second)
	case now.Sub(w.lost) > lostFor:
		w.violate("for %s only %v of %v live, after %v", lostFor, living, w.names(), w.last())
	}
	if w.commits() {
		w.agreeOn(living)
		w.raises()
		w.catchUp()
	}
}

// agreeOn has the mons name those that live, who have proved it.
func (w *World) agreeOn(living []string) {
	w.named = living
	for _, name := range living {
		w.proved[name] = true
	}
}

// lostFor is how long there may be no majority, as while a newcomer has joined and does not serve yet.
const lostFor = 2 * time.Minute

func (w *World) elect(takes time.Duration) {
	w.electing = time.Now().Add(takes)
	w.wake(takes)
}

// storeOf is where a pod has its store.
func (w *World) storeOf(p *pod) string {
	for _, v := range p.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			if c := w.claims[v.PersistentVolumeClaim.ClaimName]; c != nil {
				return "claim " + string(c.UID)
			}
		case v.HostPath != nil && strings.Contains(v.HostPath.Path+"/", "/mon-"):
			return p.Spec.NodeName + v.HostPath.Path
		}
	}
	return "nowhere"
}

// process is a mon's process: it makes its store, looks for the others, adds itself to the monmap, and comes into
// quorum.
func (w *World) process(p *pod) {
	now, name, place := time.Now(), p.mon(), w.storeOf(p)
	m, there := w.member(name)
	disk := w.stores[place]
	switch {
	case p.joins.IsZero(): // the store is made before, and the image may have to be pulled
		w.mayStart(p, disk)
		takes := w.between(50*time.Millisecond, 4*time.Second)
		p.joins = now.Add(takes)
		w.wake(takes)
	case now.Before(p.joins) || w.down[name]:
	case disk != nil && disk.mon != name:
		w.violate("mon.%s starts on the store of mon.%s", name, disk.mon)
	case there && p.ready.IsZero() && m.ip != w.address(p):
		w.violate("mon.%s starts at %s, and the monmap has it at %s", name, w.address(p), m.ip)
	case there && p.ready.IsZero():
		w.comes(p, place)
	case there:
	case disk != nil && disk.joined: // "must have been removed": it exits, and is started again, and exits
	case !w.commits():
		w.wake(time.Second)
	default:
		// Also one that has left, whose Deployment was not deleted yet when its node came back with an empty disk. It has to
		// be taken out again, or stays as what it was; a Deployment that is made under such a name is what is judged.
		delete(w.gone, name)
		w.judgeAddress(p)
		w.monmap = append(w.monmap, member{name: name, ip: w.address(p), since: time.Now()})
		w.tell("mon.%s is in the monmap", name)
		w.elect(agreed)
		w.comes(p, place)
	}
}

// comes has a mon of the monmap come into quorum, unless it never does.
func (w *World) comes(p *pod, place string) {
	takes := w.between(2*time.Second, 8*time.Second)
	p.ready = time.Now().Add(takes)
	p.shy = p.shy || w.shy && !w.proved[p.mon()]
	w.stores[place] = &store{mon: p.mon(), joined: true, version: w.versionOn(place)}
	w.wake(takes)
}

// address is the address of a mon's pod: that of its Service, or of its node.
func (w *World) address(p *pod) string {
	if p.Spec.HostNetwork {
		return addressOn(p.Spec.NodeName)
	}
	if s := w.services[monspec.ResourceName(p.mon())]; s != nil {
		return s.Spec.ClusterIP
	}
	return "nowhere"
}

// list is the mons as the endpoints name them.
func (w *World) list(names []string) string {
	var out []string
	for _, name := range names {
		m, _ := w.member(name)
		out = append(out, name+"="+m.ip+":6789")
	}
	return strings.Join(out, ",")
}

// commander is a connection of lockkeeper's to the mons.
type commander struct {
	*World
	closed *atomic.Bool // nil: it is kept
}

// belated is what nobody waits for any more, and the mons do when they have a quorum again: they drop it only if the
// connection is gone by then (seen with Ceph 16).
type belated struct {
	name   string // of the mon that leaves
	asked  when
	closed *atomic.Bool
}

// catchUp does what the mons were asked for while they had no quorum.
func (w *World) catchUp() {
	late := w.late
	w.late = nil
	for _, b := range late {
		if _, there := w.member(b.name); there && (b.closed == nil || !b.closed.Load()) {
			w.tell("the mons do what nobody waits for any more: mon rm %s", b.name)
			w.remove(b.name, b.asked)
		}
	}
}

// cephError is a return code of Ceph's.
type cephError struct{ code syscall.Errno }

func (e cephError) Error() string  { return e.code.Error() }
func (e cephError) ErrorCode() int { return -int(e.code) }

var errTimeout = cephError{syscall.ETIMEDOUT}

// when is when the mons were asked for something, and whether whoever asked knew who lives.
type when struct {
	at    time.Time
	known bool
}

// MonCommand carries out what cephmon asks.
func (c commander) MonCommand(ctx context.Context, command []byte) (output []byte, status string, err error) {
	var q struct {
		Prefix, ID, Name string
		IDs              []string
	}
	if err := json.Unmarshal(command, &q); err != nil {
		return nil, "", err
	}
	change := q.Prefix == "mon rm"
	c.mu.Lock()
	asked := when{time.Now(), c.known()}
	c.mu.Unlock()
	commits := change || q.Prefix == "config-key set"
	for {
		if commits {
			if err := c.awaitCommit(ctx); err != nil {
				if change {
					c.mu.Lock()
					c.late = append(c.late, belated{q.Name, asked, c.closed})
					c.mu.Unlock()
				}
				return nil, "", err
			}
		}
		err = c.request(ctx, strings.TrimSpace(q.Prefix+" "+q.Name), change, func() error {
			if commits && !c.commits() {
				return errElecting
			}
			output, status, err = c.carryOut(asked, q.Prefix, q.ID+q.Name, q.IDs)
			return err
		})
		if !errors.Is(err, errElecting) {
			return output, status, err
		}
	}
}

// errElecting: somebody has died before the others could agree, and they do when they have elected.
var errElecting = errors.New("the mons elect")

// awaitCommit waits until the mons agree.
func (c commander) awaitCommit(ctx context.Context) error {
	for end := time.Now().Add(answered); ; {
		c.mu.Lock()
		commits := c.commits()
		c.mu.Unlock()
		switch {
		case commits:
			return nil
		case time.Now().After(end):
			return errTimeout
		}
		if err := pause(ctx, often); err != nil {
			return err
		}
	}
}

func (w *World) carryOut(
	asked when, prefix, name string, ids []string,
) (output []byte, status string, err error) {
	busy := func(left, of int, what string, args ...any) (_ []byte, status string, err error) {
		if left < majority(of) {
			return nil, fmt.Sprintf(what, args...) + " would break quorum", cephError{syscall.EBUSY}
		}
		return nil, "", nil
	}
	if w.commits() { // an election may have ended in this very instant
		w.agreeOn(w.alives())
	}
	if len(w.named) < majority(len(w.monmap)) {
		return nil, "", errTimeout
	}
	in := func(name string) int {
		if slices.Contains(w.named, name) {
			return 1
		}
		return 0
	}
	_, known := w.member(name)
	switch prefix {
	case "config-key set":
		return nil, "", nil
	case "mon metadata":
		output, err = w.monMetadata()
		return output, "", err
	case "osd dump":
		output, err = osdDump()
		return output, "", err
	case "quorum_status":
		if w.commits() { // otherwise it says what was, as mons do until they have elected
			w.told = time.Now()
		}
		output, err = w.quorumStatus()
		return output, "", err
	case "mon ok-to-rm": // of an unknown mon it says yes
		if !known {
			return nil, "", nil
		}
		w.promises = append(w.promises, promise{leaves: name, until: time.Now().Add(promised)})
		return busy(len(w.named)-in(name), len(w.monmap)-1, "removing mon.%s", name)
	case "mon ok-to-stop":
		w.promises = append(w.promises, promise{stops: ids[0], until: time.Now().Add(promised)})
		return busy(len(w.named)-in(ids[0]), len(w.monmap), "stopping %v", ids)
	case "mon ok-to-add-offline":
		w.promises = append(w.promises, promise{until: time.Now().Add(promised)})
		return busy(len(w.named), len(w.monmap)+1, "adding a monitor")
	case "mon rm": // of an unknown mon it is a success
		if known {
			w.remove(name, asked)
		}
		return nil, "", nil
	}
	return nil, "", fmt.Errorf("the simulated mons do not know %q", prefix)
}

func (w *World) quorumStatus() ([]byte, error) {
	type address struct {
		Type string `json:"type"`
		Addr string `json:"addr"`
	}
	type mon struct {
		Name    string `json:"name"`
		Address struct {
			All []address `json:"addrvec"`
		} `json:"public_addrs"`
	}
	var q struct {
		Names  []string `json:"quorum_names"`
		MonMap struct {
			FSID       string `json:"fsid"`
			MinRelease int    `json:"min_mon_release"`
			Mons       []mon  `json:"mons"`
		} `json:"monmap"`
	}
	q.Names, q.MonMap.FSID, q.MonMap.MinRelease = w.named, fsid, w.release
	for _, m := range w.monmap {
		x := mon{Name: m.name}
		x.Address.All = []address{{"v2", m.ip + ":3300"}, {"v1", m.ip + ":6789"}}
		q.MonMap.Mons = append(q.MonMap.Mons, x)
	}
	return json.Marshal(q)
}

// remove takes a mon out of the monmap. Its process then ends by itself.
func (w *World) remove(name string, asked when) {
	w.judgeRemoval(name, asked)
	i := slices.IndexFunc(w.monmap, func(m member) bool { return m.name == name })
	if w.seen[name] {
		w.left[w.monmap[i].ip] = time.Now()
	}
	w.monmap = slices.Delete(w.monmap, i, i+1)
	w.removed[name] = true
	w.named = slices.DeleteFunc(slices.Clone(w.named), func(n string) bool { return n == name })
	w.promises = slices.DeleteFunc(w.promises, func(p promise) bool { return p.leaves == name })
	w.tell("mon.%s leaves the monmap", name)
	for _, p := range w.pods {
		if p.mon() == name && (w.gone[name] == "" || !p.ready.IsZero()) {
			p.ready = time.Time{}
			w.gone[name] = w.storeOf(p)
		}
	}
	w.living = w.alives() // nobody has died
	w.news = time.Now()
	w.elect(agreed)
}
