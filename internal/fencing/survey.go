package fencing

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what a look finds of Machines. It lists those about which there is something to do: Sift leaves out the
// others.

// Survey is what one look found of Machines: those about which there is something to do or to know.
type Survey struct {
	// Fencing is under which the look was taken: the ledger's, if that has to be cleared first.
	storage.Fencing
	// Unavailable says why the API could not be asked. Then all else is empty.
	Unavailable string            `json:"unavailable,omitempty"`
	Machines    []Machine         `json:"machines,omitempty"`
	Hosted      map[string]Hosted `json:"hosted,omitempty"` // by node, of Machines and of nodes without
	// Gone are the keys of noted Machines that are no more.
	Gone []string `json:"gone,omitempty"`
	// Foreign are Machines with a mark that equals ours and that nobody noted; Without are nodes that host daemons and
	// have no Machine. A few of each are named.
	Foreign     []string `json:"foreign,omitempty"`
	MoreForeign int      `json:"moreForeign,omitempty"`
	Without     []string `json:"without,omitempty"`
	MoreWithout int      `json:"moreWithout,omitempty"`
	// Forgotten are Machines that are being deleted and held, and whose release no fence has asked for.
	Forgotten     []string `json:"forgotten,omitempty"`
	MoreForgotten int      `json:"moreForgotten,omitempty"`
	// AskedBy is when another one is forgotten unless somebody asks for it by then; zero: there is none.
	AskedBy time.Time `json:"askedBy,omitzero"`
	// Held is how many Machines carry a hold of ours; More how many there is something to do about that are not named.
	Held int `json:"held,omitempty"`
	More int `json:"more,omitempty"`
	// Known: the storage cluster answered, and every daemon that is up has a known node.
	Known bool `json:"known,omitempty"`
	// Max is what the MachineDisruptionBudget says; nil: there is none of ours.
	Max *int `json:"max,omitempty"`
	// Never: the MachineDisruptionBudget is to let nobody go, however well the data is: see MachineBudget.
	Never bool `json:"never,omitempty"`
	// Spread is a node whose daemons are in several failure domains, so that nobody may go by number; "": there is none.
	Spread string `json:"spread,omitempty"`
	// Odd is what would keep a node from being held, or from ever being fenced, however right the holds are.
	Odd []string `json:"odd,omitempty"`
}

// MostMachines bounds the Machines that one look names. Those that are left have their turn in the next one.
const MostMachines = 64

const mostNamed = 5

// forgottenAfter is how long the watcher and a fence may take until a Machine in deletion is asked for.
const forgottenAfter = time.Minute

// Found is everything that a look found, of however many Machines.
type Found struct {
	Now      time.Time
	Ledger   *Ledger
	Machines []Machine
	Hosted   map[string]Hosted // of all nodes that host daemons
	Known    bool
	// Nodes and UIDs are asked for in any case.
	Nodes, UIDs []string
	// Ending: holds are only to be taken away.
	Ending bool
}

// Sift leaves out the Machines about which there is nothing to do: those that are held by us and host what serves, and
// those that host nothing and are not held.
func Sift(f Found) Survey {
	s := Survey{Known: f.Known, Hosted: map[string]Hosted{}}
	l := f.Ledger
	if l == nil {
		l = &Ledger{}
	}
	there, hosts := map[string]bool{}, map[string]bool{}
	for _, node := range slices.Sorted(maps.Keys(f.Hosted)) { //workflowcheck:ignore sorted before anybody sees the order
		if f.Hosted[node].Spread {
			s.Spread = node
		}
	}
	for _, m := range f.Machines {
		there[Key(m.UID)], hosts[m.Node] = true, true
		h, ours := f.Hosted[m.Node], l.holds(m.UID)
		asked := slices.Contains(f.Nodes, m.Node) && m.Node != "" || slices.Contains(f.UIDs, m.UID)
		if m.Held && ours {
			s.Held++
		}
		if m.Held && ours && m.Deleting && !asked && !f.Ending {
			s.forget(m, f.Now)
		}
		switch {
		case asked:
		case m.Held && !ours && !f.Ending:
			s.Foreign, s.MoreForeign = named(s.Foreign, s.MoreForeign, m.Name)
			continue
		case m.Held && ours && h.Running+h.Mon > 0 && !f.Ending:
			continue
		case !m.Held && !ours && (f.Ending || h.Daemons+h.Mon == 0):
			continue
		case len(s.Machines) >= MostMachines:
			s.More++
			continue
		}
		s.Machines = append(s.Machines, m)
		s.Hosted[m.Node] = h
	}
	for _, key := range l.Held {
		if !there[key] && len(s.Gone) < MostMachines {
			s.Gone = append(s.Gone, key)
		}
	}
	if f.Known && !f.Ending {
		nodes := slices.Sorted(maps.Keys(f.Hosted)) //workflowcheck:ignore sorted before anybody sees the order
		for _, node := range nodes {
			if f.Hosted[node].Daemons > 0 && !hosts[node] {
				s.Without, s.MoreWithout = named(s.Without, s.MoreWithout, node)
			}
		}
	}
	slices.SortFunc(s.Machines, func(a, b Machine) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

// forget names a Machine for which nobody has asked for long, or says when it will be one.
func (s *Survey) forget(m Machine, now time.Time) {
	if by := m.DeletingSince.Add(forgottenAfter); now.Before(by) {
		s.AskedBy = earlier(s.AskedBy, by)
		return
	}
	s.Forgotten, s.MoreForgotten = named(s.Forgotten, s.MoreForgotten, m.Name)
}

func named(names []string, more int, name string) ([]string, int) {
	if len(names) == mostNamed {
		return names, more + 1
	}
	return append(names, name), more
}
