package monplan

import (
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file foresees whether there is a node for a newcomer. It only refuses what cannot work, before anything is
// changed: the scheduler decides, by way of the canary.

// FreeZones are the zones in which a newcomer may run that replaces a mon, or none (""): those without another mon.
// Without zones in the spec there are none to choose from.
func (s Seen) FreeZones(old string) (free []string) {
	for _, zone := range s.Want.Zones {
		if !slices.ContainsFunc(s.Mons, func(m Mon) bool {
			return m.Name != old && (m.Zone == zone || m.zone() == zone)
		}) {
			free = append(free, zone)
		}
	}
	return free
}

// place tells whether some node can take a newcomer. instead: the old mon will have left its node by then.
func (s Seen) place(old string, instead bool) storage.Answer {
	_, a := s.fits(old, instead)
	return a
}

// placeLater tells whether a node could take a newcomer if it were ready, and its address had rested.
func (s Seen) placeLater(old string) bool {
	s.Nodes = slices.Clone(s.Nodes)
	for i := range s.Nodes {
		if s.Nodes[i].Passing {
			s.Nodes[i].Why = ""
		}
	}
	s.Addresses = slices.DeleteFunc(slices.Clone(s.Addresses), func(a Address) bool { return !a.Left.IsZero() })
	return s.place(old, false).OK
}

// fits is the first node that can take a newcomer, or why there is none.
func (s Seen) fits(old string, instead bool) (Node, storage.Answer) {
	free := s.FreeZones(old)
	if len(s.Want.Zones) > 0 && len(free) == 0 {
		return Node{}, no("every zone of the spec has a mon")
	}
	var taken []string
	for _, n := range s.Nodes {
		if len(s.Want.Zones) > 0 && !slices.Contains(free, n.Zone) {
			continue
		}
		why := n.Why
		if why == "" {
			why = s.hosts(n, old, instead)
		}
		if why == "" {
			return n, yes()
		}
		taken = append(taken, n.Name+" "+why)
	}
	if len(taken) == 0 {
		return Node{}, no("no node is in one of the zones %s", strings.Join(free, ", "))
	}
	return Node{}, no("no node is free: %s", strings.Join(taken, ", "))
}

// hosts is why a node has no place beside the mon that it has; "": it has.
func (s Seen) hosts(n Node, old string, instead bool) string {
	if s.Want.MultiplePerNode && !s.Want.HostNetwork {
		return ""
	}
	for _, m := range s.Mons {
		// With hostNetwork the old mon's address would be the newcomer's, and somebody may still look for the old mon there.
		if m.Node == n.Name && (m.Name != old || !instead || s.Want.HostNetwork) {
			return "has mon." + m.Name
		}
	}
	return s.spent(n)
}
