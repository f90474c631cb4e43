package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
)

// Dial implements cephcluster.Dialer.
func (w *World) Dial(context.Context, cephcluster.Address) (cephcluster.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unreachable {
		return nil, errors.New("no mon can be reached")
	}
	return monitor{w}, nil
}

// Unreachable keeps new lines to the mons from being made, or no longer.
func (w *World) Unreachable(is bool) { w.happens(func() { w.unreachable = is }) }

// monitor answers as Ceph's monitors do.
type monitor struct{ w *World }

func (monitor) Close() {}

// refusal is an answer with a return code.
type refusal syscall.Errno

func (r refusal) Error() string  { return syscall.Errno(r).Error() }
func (r refusal) ErrorCode() int { return -int(r) }

// command is all that any of our commands has.
type command struct {
	Prefix string   `json:"prefix"`
	ID     int      `json:"id"`
	IDs    []string `json:"ids"`
	Who    []string `json:"who"`
	Flags  string   `json:"flags"`
}

// MonCommand implements ceph.Commander.
func (m monitor) MonCommand(ctx context.Context, text []byte) (output []byte, status string, err error) {
	c, err := m.w.commandOf(text)
	if err != nil {
		return nil, "", err
	}
	if err := m.blocks(ctx, c); err != nil {
		return nil, "", err
	}
	err = m.w.request(ctx, "ceph "+c.Prefix, func() error {
		var answer any
		if answer, err = m.w.answer(c); err != nil {
			return err
		}
		switch plain, ok := answer.(string); {
		case ok:
			output = []byte(plain)
		case answer != nil:
			output, err = json.Marshal(answer)
		}
		return err
	})
	return output, "", err
}

// MonitorCommand implements ceph.MonitorCommander. The only command is sessions.
func (m monitor) MonitorCommand(ctx context.Context, name string, _ []byte) (output []byte, status string, err error) {
	if err := m.blocks(ctx, command{Prefix: "sessions"}); err != nil {
		return nil, "", err
	}
	err = m.w.request(ctx, "ceph sessions", func() error {
		output, err = json.Marshal(m.w.sessions(name))
		return err
	})
	return output, "", err
}

// watching is since when somebody has asked the mons for their sessions again and again, and when the last time.
type watching struct{ since, last time.Time }

// often is how much time goes by between two questions of a worker that is well, at the most.
const often = 5 * time.Second

func (a *watching) note() {
	if time.Since(a.last) > often {
		a.since = time.Now()
	}
	a.last = time.Now()
}

// goesOn tells whether somebody asks as often as that.
func (a *watching) goesOn() bool { return time.Since(a.last) <= often }

// session is one that an OSD has with a monitor.
type session struct {
	EntityName    string     `json:"entity_name"`
	Authenticated bool       `json:"authenticated"`
	Open          bool       `json:"open"`
	Addrs         ceph.Addrs `json:"addrs"`
}

// process is the address of one of an OSD's.
func process(nonce uint32) ceph.Addrs { return ceph.Addrs{Vec: []ceph.Addr{{Nonce: nonce}}} }

// sessions are those that a monitor has with OSDs; "": all of the quorum.
func (w *World) sessions(monitor string) []session {
	out := []session{}
	in := w.quorumNames()
	has := func(o *osd, at int, nonce uint32) {
		if len(in) > 0 && (monitor == "" || monitor == in[at%len(in)]) {
			out = append(out, session{o.name(), true, true, process(nonce)})
		}
	}
	for _, o := range w.osds {
		if o.running && o.cutAt.IsZero() {
			has(o, o.id, o.nonce)
		}
		if time.Now().Before(o.leftUntil) {
			has(o, o.id+1, o.leftNonce)
		}
	}
	return out
}

// monSessionTimeout is how long a monitor keeps a session whose peer is silent.
const monSessionTimeout = 5 * time.Minute

// leaveSessions has monitors keep the sessions of the OSDs on a node whose power goes, since nobody tells them.
func (w *World) leaveSessions(node string) {
	for _, p := range w.pods {
		if p.node != node || p.of.kind != "osd" || !p.runs {
			continue
		}
		if o := w.osdOf(p.of); o.running && o.cutAt.IsZero() {
			o.leftUntil, o.leftNonce = time.Now().Add(monSessionTimeout), o.nonce
		}
	}
}

// commandOf reads a command. The same few are asked over and over.
func (w *World) commandOf(text []byte) (c command, err error) {
	if known, ok := w.commands.Load(string(text)); ok {
		return known.(command), nil
	}
	if err = json.Unmarshal(text, &c); err == nil {
		w.commands.Store(string(text), c)
	}
	return c, err
}

// blocks waits until a command is answered, as librados does, at most for its timeout.
func (m monitor) blocks(ctx context.Context, c command) error {
	waiting, cancel := context.WithTimeout(ctx, monTimeout)
	defer cancel()
	switch {
	case m.w.await(waiting, func() bool { return m.w.answers(c) }):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return refusal(syscall.ETIMEDOUT)
	}
}

// answers tells whether a command is answered now. Without a quorum, status is.
func (w *World) answers(c command) bool {
	switch c.Prefix {
	case "status":
		return slices.ContainsFunc(w.mons, func(m *mon) bool { return m.running })
	case "osd ok-to-stop", "osd safe-to-destroy":
		return w.manager.alive && w.quorate()
	case "osd set-group", "osd unset-group", "config-key set":
		return w.commits()
	default:
		return w.quorate()
	}
}

func (w *World) answer(c command) (any, error) {
	if !w.answers(c) { // since it began to wait
		return nil, refusal(syscall.ETIMEDOUT)
	}
	switch c.Prefix {
	case "status":
		return w.status(), nil
	case "osd ok-to-stop":
		return w.okToStop(c.IDs)
	case "osd safe-to-destroy":
		return w.safeToDestroy(c.IDs)
	case "osd metadata":
		return w.osdMetadata(), nil
	case "osd stat":
		return map[string]int64{"epoch": w.epoch}, nil
	case "osd dump":
		return w.osdMap(), nil
	case "osd crush dump":
		return w.crushMap(), nil
	case "features":
		w.watching.note()
		return map[string]any{"osd": []map[string]int{{"num": len(w.sessions(""))}}}, nil
	case "quorum_status":
		return w.quorumStatus(), nil
	case "mgr stat":
		return ceph.Manager{Epoch: w.manager.epoch, Available: w.managerAvailable(), Name: "x"}, nil
	case "osd last-stat-seq":
		return strconv.FormatUint(w.manager.published.reports[c.ID], 10), nil
	case "config-key set":
		return nil, nil
	case "osd set-group":
		return nil, w.group(c.Who, w.setNoout)
	case "osd unset-group":
		return nil, w.group(c.Who, w.unsetNoout)
	default:
		return nil, fmt.Errorf("the simulated monitors do not know %q", c.Prefix)
	}
}

// managerAvailable stays true for a while after the manager died: one of Ceph's lies.
func (w *World) managerAvailable() bool {
	return w.manager.alive || time.Since(w.manager.died) < managerMissed
}

func (w *World) status() ceph.Status {
	s := ceph.Status{FSID: w.fsid, ElectionEpoch: w.election, QuorumNames: w.quorumNames()}
	if w.slow != "" {
		check := ceph.HealthCheck{}
		check.Summary.Message = "1 slow ops, oldest one blocked for 31 sec, " + w.slow + " has slow ops"
		s.Health.Checks = map[string]ceph.HealthCheck{"SLOW_OPS": check}
	}
	s.Health.Status = "HEALTH_OK" // whatever happens
	s.OSDMap.Epoch = w.epoch
	s.MgrMap.Available = w.managerAvailable()
	s.PGMap.NumPGs = 0
	for state, n := range w.manager.published.states {
		s.PGMap.States = append(s.PGMap.States, ceph.PGStateCount{State: state, Count: n})
		s.PGMap.NumPGs += n
	}
	return s
}

func (w *World) quorumStatus() ceph.QuorumStatus {
	q := ceph.QuorumStatus{ElectionEpoch: w.election, QuorumNames: w.quorumNames()}
	q.MonMap.MinRelease = w.versions.mons
	for _, m := range w.mons {
		q.MonMap.Mons = append(q.MonMap.Mons, ceph.Mon{Name: m.name})
	}
	return q
}

func (w *World) osdMap() *ceph.OSDMap {
	m := &ceph.OSDMap{
		RequireRelease: releaseName(w.versions.required),
		Epoch:          w.epoch, CrushVersion: w.hosts.version, LastInChange: w.lastInOut.String(),
		Flags:          slices.Clone(w.flags),
		CrushNodeFlags: map[string][]string{},
		Pools: []ceph.Pool{
			{ID: 1, Name: "rbd", Size: size, MinSize: minSize, Rule: 1, PGNum: pgNum},
			{ID: 2, Name: "far", Size: 2, MinSize: 1, Rule: 2}, // without data
		},
	}
	if w.opts.ByOSD > 0 {
		m.Pools[0].Rule = 4
	}
	if w.opts.Hybrid {
		m.Pools = append(m.Pools, ceph.Pool{ID: 3, Name: "hybrid", Size: size, MinSize: minSize, Rule: 3})
	}
	for _, o := range w.osds {
		x := ceph.OSD{
			ID: o.id, UpFrom: o.upFrom, DownAt: o.downAt, State: []string{"exists"}, Addrs: process(o.upNonce),
		}
		if o.up {
			x.Up = true
			x.State = append(x.State, "up")
		}
		if o.in {
			x.In, x.Weight = true, 1
		}
		if w.noout[o.name()] != "" {
			x.State = append(x.State, "noout")
		}
		m.OSDs = append(m.OSDs, x)
	}
	for node := range w.noout {
		if h := w.hosts.byNode[node]; h != nil {
			m.CrushNodeFlags[h.name] = []string{"noout"}
		}
	}
	return m
}

// crushMap is a root with two datacenters, their zones, hosts and OSDs, and a rule that puts a copy in each zone. A
// datacenter has more than one zone, though the number of its type is the smaller one.
func (w *World) crushMap() *ceph.CrushMap {
	type item = struct {
		ID int `json:"id"`
	}
	m := &ceph.CrushMap{
		Types: []ceph.CrushType{
			{ID: 0, Name: "osd"},
			{ID: 1, Name: "host"},
			{ID: 8, Name: "datacenter"},
			{ID: 9, Name: "zone"},
			{ID: 11, Name: "root"},
		},
		Rules: []ceph.CrushRule{
			{ID: 1, Name: "by zone", Steps: []ceph.CrushStep{
				{Op: "take", Item: -1},
				{Op: "chooseleaf_firstn", Type: "zone"},
				{Op: "emit"},
			}},
			{
				ID: 2, Name: "by datacenter",
				Steps: []ceph.CrushStep{{Op: "take", Item: -1}, {Op: "chooseleaf_firstn", Type: "datacenter"}, {Op: "emit"}},
			},
			{ID: 4, Name: "by osd", Steps: []ceph.CrushStep{
				{Op: "take", Item: -1},
				{Op: "choose_firstn", Type: "osd"},
				{Op: "emit"},
			}},
			{ID: 3, Name: "one and the others", Steps: []ceph.CrushStep{
				{Op: "take", Item: -1},
				{Op: "chooseleaf_firstn", Num: 1, Type: "zone"},
				{Op: "emit"},
				{Op: "take", Item: -1},
				{Op: "chooseleaf_firstn", Num: -1, Type: "zone"},
				{Op: "emit"},
			}},
		},
	}
	next := -1
	bucket := func(name string, typeID int) *ceph.CrushBucket {
		b := &ceph.CrushBucket{ID: next, Name: name, TypeID: typeID}
		next--
		return b
	}
	root, near, far := bucket("default", 11), bucket("near", 8), bucket("far", 8)
	root.Items = []item{{near.ID}, {far.ID}}
	for i, zone := range Zones {
		z := bucket(zone, 9)
		if i < 2 {
			near.Items = append(near.Items, item{z.ID})
		} else {
			far.Items = append(far.Items, item{z.ID})
		}
		hosts := map[string]*ceph.CrushBucket{}
		var names []string
		for _, o := range w.osds {
			if o.zone != zone {
				continue
			}
			h := hosts[o.host]
			if h == nil {
				h = &ceph.CrushBucket{ID: w.hosts.byNode[o.host].id, Name: w.hosts.byNode[o.host].name, TypeID: 1}
				hosts[o.host], names = h, append(names, o.host)
				z.Items = append(z.Items, item{h.ID})
			}
			h.Items = append(h.Items, item{o.id})
			m.Devices = append(m.Devices, ceph.CrushDevice{ID: o.id})
		}
		for _, name := range names {
			m.Buckets = append(m.Buckets, *hosts[name])
		}
		m.Buckets = append(m.Buckets, *z)
	}
	m.Buckets = append(m.Buckets, *near, *far, *root)
	return m
}

// okToStop answers from what the manager believes.
func (w *World) okToStop(ids []string) (any, error) {
	var osds []int
	for _, s := range ids {
		id, err := strconv.Atoi(s)
		if err != nil {
			return nil, err
		}
		osds = append(osds, id)
	}
	among := func(id int) bool { return slices.Contains(osds, id) }
	var bad, already []string
	for _, p := range w.pgs {
		left := 0
		for _, id := range w.manager.received[p.id].live {
			if !among(id) {
				left++
			}
		}
		name := fmt.Sprintf("1.%x", p.id)
		switch {
		case w.manager.received[p.id].state == "peering" && slices.ContainsFunc(p.acting, among):
			already = append(already, name)
		case left < minSize:
			bad = append(bad, name)
		}
	}
	answer := map[string]any{
		"ok_to_stop": len(bad)+len(already) == 0, "osds": osds, "num_not_ok_pgs": len(bad) + len(already),
		"bad_become_inactive": bad, "bad_already_inactive": already,
	}
	return answer, nil
}

// setNoout is what lockkeeper asks for. One that arrives late was right when it was sent.
func (w *World) setNoout(host string) {
	switch {
	case w.noout[host] == byPerson && w.belated:
		return // there is but one flag, and it stays the person's
	case w.noout[host] == byPerson && time.Since(w.flagged) > w.opts.Reaction:
		// else both did so, and there is but one flag
		w.violate("I4: noout is set on %s, where a person had set it", host)
		return
	}
	if w.recordOn(host) == nil && !w.belated {
		w.violate("I4: noout is set on %s before anybody wrote that down", host)
	}
	w.judgeNoout(host)
	if w.noout[host] == "" {
		w.tell("lockkeeper sets noout on %s", host)
		w.epoch++
	}
	w.noout[host] = byUs
	w.broadcast()
}

// records are the noout flags that lockkeeper has written down as its own.
func (w *World) records() []v1alpha1.NooutStatus {
	if w.policy == nil {
		return nil
	}
	return w.policy.Status.Noout
}

func (w *World) unsetNoout(host string) {
	switch {
	case w.noout[host] == byPerson && w.shared(host):
		w.tell("lockkeeper unsets noout on %s, which a person had set, too, and was told", host)
		w.epoch++
	case w.noout[host] == byPerson:
		w.violate("I4: the person's noout on %s is unset", host)
		return
	case w.noout[host] == byUs:
		w.tell("lockkeeper unsets noout on %s", host)
		w.epoch++
	}
	delete(w.noout, host)
	w.broadcast()
}
