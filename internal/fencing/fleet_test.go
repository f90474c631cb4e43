package fencing_test

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

var capi = storage.Fencing{API: "ClusterAPI", Namespace: "machines"}

// fleet is a world with Machines, the marks on them, and a keeper's ledger of them.
type fleet struct {
	*world
	ledger   *fencing.Ledger
	wanted   *storage.Fencing
	now      time.Time
	machines []fencing.Machine
	// marked are the marks that are really there, by UID: ours and those of others.
	written *fencing.Ledger // what is written down
	lost    map[string]bool
	// released is the Machine that may be fenced, whatever the ledger says.
	free map[string]bool
}

func newFleet() *fleet {
	f := &fleet{world: newWorld(), wanted: &capi, now: now, lost: map[string]bool{}, free: map[string]bool{}}
	for i, node := range nodes {
		f.machines = append(f.machines, fencing.Machine{
			Name: "machine-" + node, UID: uid(i), Node: node,
		})
	}
	return f
}

func uid(i int) string {
	return string([]byte{byte('a' + i)}) + "0000000-0000-4000-8000-000000000000"
}

func (f *fleet) hosted() map[string]fencing.Hosted {
	out := map[string]fencing.Hosted{}
	for _, node := range nodes[:6] {
		running, all := f.running(node)
		if f.silent {
			running = all // by pods, of which nobody says whether they serve
		}
		out[node] = fencing.Hosted{Daemons: all, Running: running}
	}
	for _, m := range f.mons {
		if h := out[m.Node]; m.InQuorum {
			h.Mon++
			out[m.Node] = h
		}
	}
	return out
}

// step is one look and what follows from it: first the ledger is written, then holds are set, then they go. A keeper
// that dies after some of that is one that did only so much.
func (f *fleet) step(writes, sets, removes bool) fencing.Step {
	survey := fencing.Sift(fencing.Found{
		Ledger: f.written, Machines: slices.Clone(f.machines), Hosted: f.hosted(), Known: !f.silent,
		Nodes: f.ledger.Nodes(), UIDs: f.ledger.UIDs(), Ending: f.wanted == nil,
	})
	survey.Fencing = capi
	facts := f.facts()
	facts.AskedFor = f.ledger.Nodes()
	s := fencing.Next(fencing.Input{
		Now: f.now, Ledger: f.ledger, Wanted: f.wanted, Facts: facts, Survey: survey, Timeout: 20 * time.Minute,
		Regrets: true, CountsMons: true,
	})
	f.ledger = s.Ledger
	if !writes {
		return s
	}
	f.written = s.Ledger.Clone()
	if sets {
		f.mark(s.Set, true)
	}
	if sets {
		f.mark(s.AtOnce, false)
	}
	if sets && removes {
		f.mark(s.Remove, false)
	}
	return s
}

func (f *fleet) mark(which []fencing.Machine, held bool) {
	for i, m := range f.machines {
		if slices.ContainsFunc(which, func(x fencing.Machine) bool { return x.UID == m.UID }) {
			f.machines[i].Held = held
		}
	}
}

func (f *fleet) held() (nodes []string) {
	for _, m := range f.machines {
		if m.Held {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}

// serve has the daemons of a node serve again.
func (f *fleet) serve(node string) {
	for i, o := range f.osds {
		f.osds[i].up = o.up || o.node == node
	}
}

// doom has somebody delete the Machine of a node, which cannot be taken back.
func (f *fleet) doom(node string) {
	for i, m := range f.machines {
		f.machines[i].Deleting = m.Deleting || m.Node == node
	}
	f.want(node, fencing.WhyDeleting)
}

func (f *fleet) want(node string, why fencing.Why) {
	if f.ledger == nil {
		f.ledger = &fencing.Ledger{}
	}
	t := target(node)
	t.Why, t.Since = why, f.now
	f.ledger.Request(f.now, t)
}

// byHand: a person has a node's Machine released.
func (f *fleet) byHand(node string) {
	f.want(node, fencing.WhyUnhealthy)
	t := target(node)
	t.Since, t.Override = f.now, &fencing.Override{By: "ann", Reason: "it burns", At: f.now}
	f.ledger.Request(f.now, t)
}

func (f *fleet) of(node string) (fencing.Case, bool) {
	if f.ledger == nil {
		return fencing.Case{}, false
	}
	i := slices.IndexFunc(f.ledger.Cases, func(c fencing.Case) bool { return c.Node == node })
	if i < 0 {
		return fencing.Case{}, false
	}
	return f.ledger.Cases[i], true
}

// gone: its Machine is deleted, and another takes its place some time later.
func (f *fleet) gone(node string) {
	f.machines = slices.DeleteFunc(f.machines, func(m fencing.Machine) bool { return m.Node == node })
}
