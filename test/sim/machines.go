package sim

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is the Machines of nodes, and the holds on them that lockkeeper sets and takes away. A remediator starts a
// node again which has been unready for a while, unless its Machine is held (machines_remediator.go). Whoever lets a
// Machine go is judged by what is true (machines_judge.go).

// Machines are those of a World. They implement activities.Machines.
type Machines struct {
	w     *World
	waits Waits
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
	budget    *machineBudget       // of the API that has one; nil: these are Machines of Cluster API
	closedAt  map[string]time.Time // when failure domains were last closed that had been open
}

var _ activities.Machines = (*Machines)(nil)

// Waits are how long a remediator takes over things.
type Waits struct {
	Unready time.Duration // from when on a node counts as unhealthy
	Looks   time.Duration // how often it looks
	Starts  time.Duration // how long a node takes that it starts
}

func (w Waits) orShort() Waits {
	return Waits{
		Unready: cmp.Or(w.Unready, 5*time.Second), Looks: cmp.Or(w.Looks, 3*time.Second),
		Starts: cmp.Or(w.Starts, 20*time.Second),
	}
}

const (
	machineNames = "machine-of-"
	// givesUpHolds is how long the last release of all holds may take once the policy names no fencing.
	givesUpHolds = 2 * time.Minute
	// releasedWithin is how long a node may be held whose fence costs nothing.
	releasedWithin = 3 * time.Minute
	// asksAgain is after how long a fence asks again that a keeper has forgotten.
	asksAgain = 5 * time.Minute
)

// Machines makes the Machines of a World, whose policy then says that they are fenced.
func (w *World) Machines() *Machines {
	m := &Machines{
		w: w, held: map[string]bool{}, released: map[string]bool{}, lostAt: map[string]time.Time{}, fences: map[string]int{},
		deleting: map[string]time.Time{}, away: map[string]bool{}, made: map[string]int{}, byHand: map[string]bool{},
		costless: map[string]time.Time{}, starting: map[string]bool{}, taken: map[string]bool{},
		closedAt: map[string]time.Time{}, waits: w.opts.Remediator.orShort(),
	}
	w.machines = m
	go func() {
		for w.end.Err() == nil {
			time.Sleep(m.waits.Looks)
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
			next.Spec.Fencing = v1alpha1.FencingSpec{API: w.machines.api(), Namespace: "machines"}
		}
		w.tell("a person changes the policy: fencing %t", on)
		w.putPolicy(next)
		w.tellWatcher()
	})
}

// SetHold has the policy say another way to hold Machines. All holds are given up for that sooner or later.
func (w *World) SetHold(hold string) {
	w.happens(func() {
		w.foreseeRelease(time.Hour)
		next := w.policy.DeepCopy()
		next.Spec.Fencing.Hold = v1alpha1.FencingHold(hold)
		w.tell("a person changes the policy: Machines are held by %s", hold)
		w.putPolicy(next)
		w.tellWatcher()
	})
}

// ReleasedByHand has a person tell lockkeeper to release a Machine, whatever it takes.
func (m *Machines) ReleasedByHand(name string) { m.w.happens(func() { m.byHand[name] = true }) }

// Sight is what a watcher sees of a node and its Machine, and whether the policy names fencing.
func (m *Machines) Sight(name string) (p fencing.Patient, fenced bool) {
	m.w.happens(func() { p, fenced = m.patient(name), m.fenced() })
	return p, fenced
}

func (m *Machines) fenced() bool {
	p := m.w.policy
	return p != nil && p.DeletionTimestamp == nil && p.Spec.Fencing.API == m.api()
}

func (m *Machines) api() v1alpha1.FencingAPI {
	if m.budget != nil {
		return v1alpha1.FencingMachineDisruptionBudget
	}
	return v1alpha1.FencingClusterAPI
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

func (m *Machines) machine(name string) fencing.Machine {
	return fencing.Machine{
		Name: machineNames + name, UID: fmt.Sprintf("%03d-%-9.9s-%s", m.made[name], name, name), Node: name,
		Held: m.held[name], Deleting: !m.deleting[name].IsZero(), DeletingSince: m.deleting[name],
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
	case time.Since(lost) < m.waits.Unready:
		p.Next = lost.Add(m.waits.Unready)
	default:
		p.Unhealthy, p.Condition = lost.Add(m.waits.Unready), "Ready=Unknown"
	}
	return p
}

// DeletePods implements activities.Machines. The pods of a node of metal are those that come back with it.
func (m *Machines) DeletePods(context.Context, storage.ClusterKey, string) (int, error) {
	return 0, nil
}
