package longhorn

import (
	"cmp"
	"maps"
	"slices"
)

// surveyed is a World with its references resolved.
type surveyed struct {
	world   World
	nodes   []*node // by name
	byName  map[string]*node
	volumes []*volume // by name
}

// node is what matters of a node.
type node struct {
	name    string
	leaving Leaving
	turn    int // among those that are leaving: the lowest first
	helpers []string
	// serves tells whether its replicas could be used now, returns whether it leaves with all its data, to come back.
	serves, returns bool
	// ended: nothing is left of its instance managers that could be evicted.
	ended  bool
	pinned bool
	// engine, replica, inUse are examples: of an engine that runs on it, of a replica of any kind on it, of an attached
	// volume that writes to a replica on it.
	engine, replica, inUse string
	fault                  string
	// evicts: Longhorn moves a replica away from it.
	evicts bool
	evict  Eviction
	// volumes have data on it; counting are those of them that matter when it leaves.
	volumes, counting []*volume

	state   State
	reason  Reason
	subject string
}

// volume is what matters of a volume.
type volume struct {
	name    string
	holders []holder
	// keepers are the nodes that stay, serve, and have a healthy replica: one of them has to be kept. Those whose replica
	// is evicted are among them only if there are no others.
	keepers []*node
	covered bool
	// evicted are those whose replica is evicted, and rebuilds the nodes on which another one is being made.
	evicted, rebuilds []*node
	// moves: the volume has no healthy replica on a node that stays but such as are evicted.
	moves bool
}

// holder is a node with data of a volume.
type holder struct {
	node *node
	// healthy tells whether the data is a whole copy, counts whether it matters when the node leaves.
	healthy, counts bool
}

// keep keeps a node. The first reason counts.
func (n *node) keep(why Reason, subject string) {
	if n.reason == "" {
		n.state, n.reason, n.subject = Kept, why, subject
	}
}

func (n *node) open(why Reason, subject string) { n.state, n.reason, n.subject = Open, why, subject }

// survey resolves what refers to what.
func survey(w World) *surveyed {
	s := &surveyed{world: w, byName: make(map[string]*node, len(w.Nodes))}
	for _, n := range w.Nodes {
		found := s.node(n.Name)
		found.leaving, found.serves, found.helpers, found.pinned = w.leaving(n), n.Ready, n.Helpers, n.Pinned
		found.returns, found.ended = w.returns(n), true
	}
	for i, name := range slices.Backward(w.Going) {
		if n := s.byName[name]; n != nil {
			n.turn = i - len(w.Going)
		}
	}
	s.addFaults()
	running := s.addManagers()
	s.addReplicas(running)
	s.nodes = slices.SortedFunc(maps.Values(s.byName), func(a, b *node) int { return cmp.Compare(a.name, b.name) })
	for _, n := range s.nodes {
		n.state = Spare
		if n.leaving != NotLeaving {
			n.state = Kept // until letGo says otherwise
		}
		sortVolumes(n.volumes)
		sortVolumes(n.counting)
	}
	sortVolumes(s.volumes)
	return s
}

func sortVolumes(of []*volume) {
	slices.SortFunc(of, func(a, b *volume) int { return cmp.Compare(a.name, b.name) })
}

// first is the example that is shown of several: whatever the order in which they were read, the same one.
func first(a, b string) string {
	if a == "" || b < a {
		return b
	}
	return a
}

// node finds a node, or makes one that is gone.
func (s *surveyed) node(name string) *node {
	n := s.byName[name]
	if n == nil {
		n = &node{name: name, leaving: Gone}
		s.byName[name] = n
	}
	return n
}

func (s *surveyed) addFaults() {
	for _, f := range s.world.Faults {
		for _, n := range s.byName {
			if f.Node == "" || f.Node == n.name {
				n.fault = first(n.fault, f.String())
			}
		}
	}
}

// addManagers takes in the instance managers, and tells on which nodes one runs that can have replicas.
func (s *surveyed) addManagers() map[string]bool {
	running := map[string]bool{}
	for _, m := range s.world.Managers {
		if m.Node == "" {
			continue
		}
		n := s.node(m.Node)
		n.ended = n.ended && m.Ended
		if len(m.Engines) > 0 {
			n.engine = first(n.engine, slices.Min(m.Engines))
		}
		switch m.Kind {
		case Engine:
		case Replicas, AllInOne:
			running[m.Node] = running[m.Node] || m.State == Running
		default:
			n.fault = first(n.fault, Fault{
				Object: "InstanceManager " + m.Name, Field: "spec.type", Value: string(m.Kind),
				Allowed: "engine, replica and aio",
			}.String())
		}
	}
	return running
}

func (s *surveyed) addReplicas(running map[string]bool) {
	attached := map[string]bool{}
	for _, v := range s.world.Volumes {
		attached[v.Name] = v.State != Detached
	}
	volumes := map[string]*volume{}
	for _, r := range s.world.Replicas {
		if r.Node == "" {
			continue // not scheduled yet, so it has no data
		}
		n := s.node(r.Node)
		n.replica = first(n.replica, r.Name)
		n.evicts = n.evicts || r.Evicted
		if attached[r.Volume] && r.Current == Running && !r.Failed {
			n.inUse = first(n.inUse, r.Volume)
		}
		if !r.used() && !r.rebuilding() {
			continue
		}
		v := volumes[r.Volume]
		if v == nil {
			v = &volume{name: r.Volume}
			volumes[r.Volume] = v
			s.volumes = append(s.volumes, v)
		}
		if r.rebuilding() {
			v.rebuilds = append(v.rebuilds, n)
			continue
		}
		serves := n.leaving == NotLeaving && n.serves && running[r.Node]
		v.add(n, r, s.world.Settings.counts(r, n.returns), serves)
	}
	for _, v := range s.volumes {
		if v.moves = v.moves && len(v.keepers) == 0; len(v.keepers) == 0 {
			v.keepers = v.evicted
		}
	}
}

// add notes a node with data. Of two replicas of one volume on one node, each may be the one that matters.
func (v *volume) add(n *node, r Replica, counts, serves bool) {
	at := slices.IndexFunc(v.holders, func(h holder) bool { return h.node == n })
	if at < 0 {
		at = len(v.holders)
		v.holders = append(v.holders, holder{node: n})
		n.volumes = append(n.volumes, v)
	}
	h := &v.holders[at]
	if counts && !h.counts {
		n.counting = append(n.counting, v)
	}
	h.healthy, h.counts = h.healthy || r.whole(), h.counts || counts
	v.moves = v.moves || r.whole() && r.Evicted
	of := &v.keepers
	if r.Evicted {
		of = &v.evicted
	}
	if r.whole() && serves && !slices.Contains(*of, n) {
		*of = append(*of, n)
	}
}

// conflicts are the other nodes that are leaving and share a volume with the node, by name.
func (n *node) conflicts() []string {
	if n.leaving == NotLeaving || n.leaving == Gone {
		return nil
	}
	found := map[string]bool{}
	for _, v := range n.volumes {
		for _, h := range v.holders {
			if h.node != n && h.node.leaving != NotLeaving && h.node.leaving != Gone {
				found[h.node.name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// alone are the volumes that the node keeps alone, by name: no other node that stays and serves has a healthy replica.
func (n *node) alone() []string {
	var names []string
	for _, v := range n.volumes {
		if !slices.ContainsFunc(v.keepers, func(k *node) bool { return k != n }) {
			names = append(names, v.name)
		}
	}
	slices.Sort(names)
	return names
}
