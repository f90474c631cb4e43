package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what fences nodes: a Machine for each node, a hold on it, and a remediator that starts a node again
// which has been unready for a while, unless its Machine is held. Whoever lets a Machine go is judged by what is true.

// Machines are those of a World. They implement activities.Machines.
type Machines struct {
	w *World
	// Of each node: whether its Machine is held, whether a hold was taken away and it may be fenced, how often it was.
	held, released map[string]bool
	lostAt         map[string]time.Time
	fences         map[string]int
	// deleting is since when somebody wants a Machine gone; away are nodes without one; made is how many a node has had.
	deleting map[string]time.Time
	away     map[string]bool
	made     map[string]int
	// byHand are nodes whose Machine a person has told lockkeeper to release. Until foreseen, what goes is no surprise:
	// the policy held nothing a moment ago.
	byHand    map[string]bool
	taken     map[string]bool // from whose Machines a person has taken the hold
	foreseen  time.Time
	idle      bool                 // the remediator is away
	starting  map[string]bool      // nodes that the remediator starts
	costless  map[string]time.Time // since when nothing would be lost by the fence of a node that is held
	hindrance time.Time            // when something last kept lockkeeper from releasing what costs nothing
}

var _ activities.Machines = (*Machines)(nil)

// Timings of the remediator.
const (
	unreadyFor   = 5 * time.Second // from when on a node counts as unhealthy
	remediates   = 3 * time.Second // how often it looks
	startsAgain  = 20 * time.Second
	machineNames = "machine-of-"
	// givesUpHolds is how long the last release of all holds may take once the policy names no fencing.
	givesUpHolds = 2 * time.Minute
	// releasedWithin is how long a node may be held whose fence costs nothing.
	releasedWithin = 3 * time.Minute
)

// Machines makes the Machines of a World, whose policy then says that they are fenced.
func (w *World) Machines() *Machines {
	m := &Machines{
		w: w, held: map[string]bool{}, released: map[string]bool{}, lostAt: map[string]time.Time{}, fences: map[string]int{},
		deleting: map[string]time.Time{}, away: map[string]bool{}, made: map[string]int{}, byHand: map[string]bool{},
		costless: map[string]time.Time{}, starting: map[string]bool{}, taken: map[string]bool{},
	}
	w.machines = m
	go func() {
		for w.end.Err() == nil {
			time.Sleep(remediates)
			w.happens(m.remediate)
		}
	}()
	return m
}

// SetFencing has the policy say what fences nodes, or that nothing does.
func (w *World) SetFencing(on bool) {
	w.happens(func() {
		if w.policy == nil {
			return
		}
		if !on {
			w.foreseeRelease(givesUpHolds)
		}
		next := w.policy.DeepCopy()
		if next.Spec.Fencing = (v1alpha1.FencingSpec{}); on {
			next.Spec.Fencing = v1alpha1.FencingSpec{API: v1alpha1.FencingClusterAPI, Namespace: "machines"}
		}
		w.tell("a person changes the policy: fencing %t", on)
		w.putPolicy(next)
		w.tellWatcher()
	})
}

// LosePower ends everything on a node, and nothing but the remediator starts it again.
func (m *Machines) LosePower(name string) {
	m.w.happens(func() {
		n := m.w.nodes[name]
		if n == nil || n.gone || n.rebooting || !m.lostAt[name].IsZero() {
			return
		}
		m.w.tell("%s loses its power", name)
		n.ready, n.rebooting = false, true
		m.lostAt[name] = time.Now()
		for _, p := range m.w.pods {
			if p.node == name {
				m.w.crashOn(p)
			}
		}
		m.w.kubeChanged()
	})
}

// PowerReturns gives a node its power back, unless somebody starts it by now.
func (m *Machines) PowerReturns(name string) {
	m.w.happens(func() {
		if !m.lostAt[name].IsZero() {
			m.w.tell("%s has its power again", name)
			delete(m.lostAt, name)
			m.back(name)
		}
	})
}

// Delete is a person, a rollout or an autoscaler who wants a Machine gone. It goes when nobody holds it, its node with
// it, and another one takes its place, with the disks.
func (m *Machines) Delete(name string) {
	m.w.happens(func() {
		if m.away[name] || !m.deleting[name].IsZero() {
			return
		}
		m.w.tell("a person deletes the Machine of %s", name)
		m.deleting[name] = time.Now()
	})
}

// remediate starts a node again that nobody holds, and takes the Machines away that are being deleted.
func (m *Machines) remediate() {
	for _, name := range m.w.names {
		lost := m.lostAt[name]
		switch {
		case m.held[name] || m.away[name] || m.idle:
		case !m.deleting[name].IsZero():
			m.take(name)
		case !lost.IsZero() && time.Since(lost) >= unreadyFor:
			m.w.tell("the remediator starts %s again", name)
			m.fences[name]++
			delete(m.lostAt, name)
			m.starting[name] = true
			m.w.later(startsAgain, func() { m.back(name) })
		}
	}
	m.judgeWaits()
}

// take takes a Machine away, and its node.
func (m *Machines) take(name string) {
	w, n := m.w, m.w.nodes[name]
	w.tell("the Machine of %s is gone, and the node with it", name)
	m.away[name] = true
	m.fences[name]++
	delete(m.deleting, name)
	delete(m.lostAt, name)
	delete(m.released, name)
	delete(m.byHand, name)
	n.gone, n.rebooting = true, false
	w.crashed = time.Now()
	for _, p := range slices.Clone(w.pods) {
		if p.node == name && p.bound {
			w.crashOn(p)
			w.remove(p)
		}
	}
	w.kubeChanged()
	w.later(startsAgain, func() { m.replaced(name) })
}

// replaced is another Machine, which takes the place of one that is gone.
func (m *Machines) replaced(name string) {
	n := m.w.nodes[name]
	m.w.tell("another Machine takes the place of that of %s", name)
	delete(m.away, name)
	m.made[name]++
	if n.gone {
		*n = node{name: n.name, zone: n.zone, uid: n.uid + "+", boot: n.boot + 1, ready: true}
	}
	m.w.kubeChanged()
	m.w.schedule()
}

func (m *Machines) back(name string) {
	n := m.w.nodes[name]
	delete(m.starting, name)
	if !m.lostAt[name].IsZero() || m.away[name] { // once more, or for good
		return
	}
	n.rebooting, n.ready = false, true
	n.boot++
	m.w.tell("%s is back", name)
	for _, p := range slices.Clone(m.w.pods) {
		if p.node == name && p.bound {
			m.w.later(podStarts, func() { m.w.run(p) })
		}
	}
	m.w.kubeChanged()
	m.w.schedule()
}

// Idle has the remediator do nothing, or act again.
func (m *Machines) Idle(on bool) { m.w.happens(func() { m.idle = on }) }

// ReleasedByHand has a person tell lockkeeper to release a Machine, whatever it takes.
func (m *Machines) ReleasedByHand(name string) { m.w.happens(func() { m.byHand[name] = true }) }

// Hindered says that lockkeeper cannot be expected to release anything just now.
func (m *Machines) Hindered() { m.w.happens(func() { m.hindrance = time.Now() }) }

// Unrest is what has not come to an end about Machines.
func (m *Machines) Unrest() (out []string) {
	m.w.happens(func() {
		for _, name := range m.w.names {
			switch {
			case !m.lostAt[name].IsZero():
				out = append(out, name+" has no power")
			case m.away[name]:
				out = append(out, name+" has no Machine")
			case !m.deleting[name].IsZero():
				out = append(out, "the Machine of "+name+" is being deleted")
			case m.w.nodes[name].rebooting:
				out = append(out, name+" starts")
			case m.fenced() && !m.held[name] && m.serves(name) > 0:
				out = append(out, "nobody holds the Machine of "+name)
			case m.w.policy == nil && m.held[name]:
				out = append(out, "the Machine of "+name+" is held, and there is no policy")
			}
		}
	})
	return out
}

// Quorate tells whether enough mons run for a quorum.
func (m *Machines) Quorate() (is bool) {
	m.w.happens(func() { is = m.w.enoughMons() })
	return is
}

// Without are the nodes that have no power.
func (m *Machines) Without() (nodes []string) {
	m.w.happens(func() {
		for _, name := range m.w.names {
			if !m.lostAt[name].IsZero() {
				nodes = append(nodes, name)
			}
		}
	})
	return nodes
}

// Sight is what a watcher sees of a node and its Machine, and whether the policy names fencing.
func (m *Machines) Sight(name string) (p fencing.Patient, fenced bool) {
	m.w.happens(func() { p, fenced = m.patient(name), m.fenced() })
	return p, fenced
}

func (m *Machines) fenced() bool {
	p := m.w.policy
	return p != nil && p.DeletionTimestamp == nil && p.Spec.Fencing.API == v1alpha1.FencingClusterAPI
}

func (m *Machines) serves(name string) (n int) {
	for _, o := range m.w.osds {
		if o.host == name && o.serves() {
			n++
		}
	}
	return n
}

// Fences is how often a node was fenced.
func (m *Machines) Fences(name string) (n int) {
	m.w.happens(func() { n = m.fences[name] })
	return n
}

// AllFences is how often any node was fenced.
func (m *Machines) AllFences() (n int) {
	m.w.happens(func() {
		for _, fences := range m.fences {
			n += fences
		}
	})
	return n
}

// Held are the nodes whose Machines are held.
func (m *Machines) Held() (nodes []string) {
	m.w.happens(func() {
		for _, name := range m.w.names {
			if m.held[name] {
				nodes = append(nodes, name)
			}
		}
	})
	return nodes
}

// TakeHold is a person who takes the hold of a Machine away.
func (m *Machines) TakeHold(name string) {
	m.w.happens(func() {
		m.w.tell("a person takes the hold of %s away", name)
		m.held[name], m.taken[name] = false, true
	})
}

// blames judges what lockkeeper says of somebody who took a hold away (I11).
func (m *Machines) blames(message string) {
	for _, name := range m.w.names {
		if strings.Contains(message, "Machine "+machineNames+name+" ") && !m.taken[name] {
			m.w.violate("I11: nobody has touched the hold of %s: %s", name, message)
		}
	}
}

func (m *Machines) machine(name string) fencing.Machine {
	return fencing.Machine{
		Name: machineNames + name, UID: fmt.Sprintf("%03d-%-9.9s-%s", m.made[name], name, name), Node: name,
		Held: m.held[name],
	}
}

// Machines implements activities.Machines.
func (m *Machines) Machines(
	ctx context.Context, _ storage.ClusterKey, _ storage.Fencing,
) (out []fencing.Machine, err error) {
	err = m.w.request(ctx, "list Machines", func() error {
		for _, name := range m.w.names {
			if !m.away[name] {
				out = append(out, m.machine(name))
			}
		}
		return nil
	})
	return out, err
}

// Max implements activities.Machines.
func (m *Machines) Max(context.Context, storage.ClusterKey, storage.Fencing) (*int, error) {
	return nil, nil
}

// SetMax implements activities.Machines.
func (m *Machines) SetMax(context.Context, storage.ClusterKey, storage.Fencing, *int) error {
	return nil
}

// Hold implements activities.Machines.
func (m *Machines) Hold(
	ctx context.Context, _ storage.ClusterKey, _ storage.Fencing, which fencing.Machine, on bool,
) error {
	return m.w.request(ctx, "hold a Machine", func() error {
		is := m.machine(which.Node)
		if m.away[which.Node] || is.UID != which.UID {
			return nil // that Machine is gone
		}
		if m.held[which.Node] = on; on {
			m.released[which.Node] = false
		} else if is.Held {
			m.judge(which.Node)
		}
		return nil
	})
}

// foreseeRelease: who has seen what a person does now gives up all holds, even if it is taken back a moment later.
func (w *World) foreseeRelease(within time.Duration) {
	if m := w.machines; m != nil {
		if until := time.Now().Add(within); until.After(m.foreseen) {
			m.foreseen = until
		}
	}
}

// judge judges a release by what is true: I7, and that it takes nothing while another failure domain is hurt.
func (m *Machines) judge(name string) {
	w := m.w
	hosts, serves := m.reliedOn(name), m.serves(name)
	if len(hosts) == 0 || !m.fenced() || w.older != nil || w.elsewhere != nil || time.Now().Before(m.foreseen) {
		// all holds go with the policy, and with one that gives way to another
		return
	}
	m.released[name] = true
	w.tell("the Machine of %s is released", name)
	for _, other := range w.names {
		if other != name && m.released[other] && len(m.reliedOn(other)) > 0 {
			w.violate("I7: the Machine of %s is released while that of %s is", name, other)
		}
	}
	if serves == 0 || m.byHand[name] || time.Since(w.crashed) < w.opts.Reaction || time.Now().Before(w.unguarded) ||
		w.hangsUnseen() || w.unknowable() {
		return
	}
	for _, o := range w.osds {
		known := time.Since(o.since) > w.opts.Reaction && time.Since(w.lastInOut) > w.opts.Reaction
		if !hosts[w.domainOf(o)] && !o.up && known && w.missed(o) {
			w.violate("I1: the Machine of %s is released, %d of its OSDs serve, and %s in %s is down and missed", name, serves,
				o.name(), w.domainOf(o))
		}
	}
}

// reliedOn are the failure domains of those of a node's OSDs that data is on. Without the others it is whole. One that
// has only just come up counts when a look could have seen it.
func (m *Machines) reliedOn(name string) map[string]bool {
	w, domains := m.w, map[string]bool{}
	for _, o := range w.osds {
		seen := !o.up || time.Since(o.since) > w.opts.Reaction
		if o.host == name && seen && (o.serves() || w.missed(o)) {
			domains[w.domainOf(o)] = true
		}
	}
	return domains
}

// judgeWaits: a node whose fence costs nothing is released in bounded time (I8).
func (m *Machines) judgeWaits() {
	w := m.w
	if !m.fenced() {
		w.foreseeRelease(givesUpHolds)
	}
	if w.older != nil || w.elsewhere != nil {
		w.foreseeRelease(w.opts.Reaction / 4)
	}
	able := m.fenced() && w.quorate() && time.Now().After(w.unguarded) && w.older == nil && w.elsewhere == nil
	for _, name := range w.names {
		able = able && !m.released[name]
	}
	if !able {
		m.hindrance = time.Now()
	}
	for _, name := range w.names {
		if !m.free(name) {
			delete(m.costless, name)
			continue
		}
		if m.costless[name].IsZero() {
			m.costless[name] = time.Now()
		}
		// A keeper that was killed has forgotten who asked it last: the fence asks again five minutes after it did.
		within := releasedWithin + w.opts.Reaction
		if time.Since(m.costless[name]) > within && time.Since(m.hindrance) > within {
			w.violate("I8: the Machine of %s is held, although its fence costs nothing", name)
		}
	}
}

// free tells whether a node is to be fenced and held, and nothing on it serves, by Ceph's map.
func (m *Machines) free(name string) bool {
	why, _ := m.patient(name).Why()
	if why == fencing.WhyRecovered || !m.held[name] || m.away[name] {
		return false
	}
	return !slices.ContainsFunc(m.w.osds, func(o *osd) bool { return o.host == name && (o.up || o.running) }) &&
		!slices.ContainsFunc(m.w.mons, func(x *mon) bool { return x.host == name && (x.in || x.running) })
}

// Patient implements activities.Machines.
func (m *Machines) Patient(
	ctx context.Context, _ storage.ClusterKey, _ storage.Fencing, name string,
) (p fencing.Patient, err error) {
	err = m.w.request(ctx, "read a Machine", func() error {
		if m.w.nodes[name] != nil {
			p = m.patient(name)
		}
		return nil
	})
	return p, err
}

func (m *Machines) patient(name string) (p fencing.Patient) {
	n := m.w.nodes[name]
	if !m.away[name] {
		p.Machine, p.Deleting = m.machine(name), m.deleting[name]
	}
	if n.gone {
		return p
	}
	p.Found, p.Ready, p.UID = true, n.ready, n.uid
	p.BootID = fmt.Sprintf("boot-%s-%d", n.name, n.boot)
	switch lost := m.lostAt[name]; {
	case n.ready || lost.IsZero() && !m.starting[name]: // a reboot takes less than a health check waits
	case lost.IsZero():
		p.Unhealthy, p.Condition = time.Now().Add(-time.Second), "Ready=Unknown"
	case time.Since(lost) < unreadyFor:
		p.Next = lost.Add(unreadyFor)
	default:
		p.Unhealthy, p.Condition = lost.Add(unreadyFor), "Ready=Unknown"
	}
	return p
}

// DeletePods implements activities.Machines. The pods of a node of metal are those that come back with it.
func (m *Machines) DeletePods(context.Context, storage.ClusterKey, string) (int, error) {
	return 0, nil
}
