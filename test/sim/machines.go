package sim

import (
	"context"
	"fmt"
	"slices"
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
}

var _ activities.Machines = (*Machines)(nil)

// Timings of the remediator.
const (
	unreadyFor   = 5 * time.Second // from when on a node counts as unhealthy
	remediates   = 3 * time.Second // how often it looks
	startsAgain  = 20 * time.Second
	machineNames = "machine-of-"
)

// Machines makes the Machines of a World, whose policy then says that they are fenced.
func (w *World) Machines() *Machines {
	m := &Machines{
		w: w, held: map[string]bool{}, released: map[string]bool{}, lostAt: map[string]time.Time{}, fences: map[string]int{},
	}
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

// remediate starts a node again that nobody holds.
func (m *Machines) remediate() {
	for _, name := range m.w.names {
		if at := m.lostAt[name]; !at.IsZero() && time.Since(at) >= unreadyFor && !m.held[name] {
			m.w.tell("the remediator starts %s again", name)
			m.fences[name]++
			delete(m.lostAt, name)
			m.w.later(startsAgain, func() { m.back(name) })
		}
	}
}

func (m *Machines) back(name string) {
	n := m.w.nodes[name]
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

// Fences is how often a node was fenced.
func (m *Machines) Fences(name string) (n int) {
	m.w.happens(func() { n = m.fences[name] })
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
		m.held[name] = false
	})
}

func (m *Machines) machine(name string) fencing.Machine {
	return fencing.Machine{
		Name: machineNames + name, UID: fmt.Sprintf("%-13.13s-%s", name, name), Node: name, Held: m.held[name],
	}
}

// Machines implements activities.Machines.
func (m *Machines) Machines(
	ctx context.Context, _ storage.ClusterKey, _ storage.Fencing,
) (out []fencing.Machine, err error) {
	err = m.w.request(ctx, "list Machines", func() error {
		for _, name := range m.w.names {
			out = append(out, m.machine(name))
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
		if m.held[which.Node] = on; on {
			m.released[which.Node] = false
			return nil
		}
		m.judge(which.Node)
		return nil
	})
}

// judge judges a release by what is true: I7, and that it takes nothing while another failure domain is hurt.
func (m *Machines) judge(name string) {
	w := m.w
	if w.policy == nil || w.policy.DeletionTimestamp != nil || w.policy.Spec.Fencing.API != v1alpha1.FencingClusterAPI {
		return // all holds go with the policy
	}
	hosts, serves, zone := 0, 0, ""
	for _, o := range w.osds {
		if o.host == name {
			hosts, zone = hosts+1, o.zone
			if o.serves() {
				serves++
			}
		}
	}
	if hosts == 0 {
		return
	}
	m.released[name] = true
	w.tell("the Machine of %s is released", name)
	for _, other := range w.names {
		if other != name && m.released[other] {
			w.violate("I7: the Machine of %s is released while that of %s is", name, other)
		}
	}
	for _, o := range w.osds {
		if serves > 0 && o.zone != zone && !o.up {
			w.violate("the Machine of %s is released, %d of its OSDs serve, and %s of %s is down", name, serves, o.name(),
				o.zone)
		}
	}
}

// Patient implements activities.Machines.
func (m *Machines) Patient(
	ctx context.Context, _ storage.ClusterKey, _ storage.Fencing, name string,
) (p fencing.Patient, err error) {
	err = m.w.request(ctx, "read a Machine", func() error {
		n := m.w.nodes[name]
		if n == nil {
			return nil
		}
		p.Machine, p.Found, p.Ready, p.UID = m.machine(name), !n.gone, n.ready, n.uid
		p.BootID = fmt.Sprintf("boot-%s-%d", n.name, n.boot)
		if !n.ready {
			p.Unhealthy, p.Condition = m.lostAt[name].Add(unreadyFor), "Ready=Unknown"
			if m.lostAt[name].IsZero() { // it starts
				p.Unhealthy = time.Now().Add(-time.Second)
			}
		}
		return nil
	})
	return p, err
}

// DeletePods implements activities.Machines. The pods of a node of metal are those that come back with it.
func (m *Machines) DeletePods(context.Context, storage.ClusterKey, string) (int, error) {
	return 0, nil
}
