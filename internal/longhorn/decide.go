package longhorn

import (
	"cmp"
	"slices"
)

// Decision is what is to be.
type Decision struct {
	// Nodes are all nodes of the World, by name, and those that are gone and have replicas in Longhorn's books.
	Nodes []NodeVerdict
	// Managers are all instance managers, by name.
	Managers []Verdict
	// OneMore tells that of the managers that are Spare one may be evicted without another decision. It is false as long
	// as a node is allowed to leave: the two could share a volume; and as long as replicas are moved, to a spare node
	// perhaps.
	OneMore bool
	// Kept are the nodes that keep their budget for the sake of detached volumes: the Kept of the next World.
	Kept []string
	// Faults are what could not be read.
	Faults []Fault
}

// State is what evictions of an instance manager meet.
type State string

// The states.
const (
	Kept  State = "Kept"  // no eviction
	Spare State = "Spare" // one eviction among all that are Spare, if OneMore
	Open  State = "Open"  // any eviction
)

// Verdict is the answer about one instance manager.
type Verdict struct {
	Manager, Node string
	State         State
	Reason        Reason
	// Subject is what the reason is about: an engine, a volume, a node.
	Subject string
}

// NodeVerdict is the answer about one node.
type NodeVerdict struct {
	Node    string
	Leaving Leaving
	State   State
	Reason  Reason
	Subject string
	// Stay tells that the node gets the annotations that hold autoscalers back from it: it must not be chosen.
	Stay bool
	// Evict is what Longhorn is to be told about its replicas.
	Evict Eviction
	// Conflicts are the nodes that are leaving, too, and share a volume with this one.
	Conflicts []string
	// Alone are the volumes of which no other node has a healthy replica.
	Alone []string
}

// Decide answers for a whole installation. Its order is that of its reasons: first what must stay whatever else is,
// then a small set of nodes that keeps all other volumes, and then who of those that are leaving may go beside whom.
func Decide(w World) Decision {
	faults := slices.Clone(w.Faults)
	if !w.Settings.DrainPolicy.known() {
		faults = append(faults, unknownPolicy(w.Settings)) // which keeps no more nodes than the strictest policy does
		w.Settings.DrainPolicy = BlockForEviction
	}
	s := survey(w)
	s.keepWhatIsInUse()
	s.keepLastReplicas()
	kept := s.keepCover()
	s.letGo()
	moves := s.evict()
	d := s.decision(kept)
	d.OneMore = d.OneMore && !moves
	d.Faults = faults
	return d
}

func unknownPolicy(s Settings) Fault {
	allowed := ""
	for i, p := range DrainPolicies {
		if i > 0 {
			allowed += ", "
		}
		allowed += string(p)
	}
	return Fault{Object: "Setting node-drain-policy", Field: "value", Value: string(s.DrainPolicy), Allowed: allowed}
}

// keepWhatIsInUse keeps the nodes about which no other node has a say.
func (s *surveyed) keepWhatIsInUse() {
	settings := s.world.Settings
	for _, n := range s.nodes {
		switch removed := n.leaving != NotLeaving && n.leaving != Cordoned; {
		case n.engine != "":
			n.keep(EngineRunning, n.engine)
		case n.fault != "":
			n.keep(Malformed, n.fault)
		case removed && n.leaving != Gone && settings.ClusterAutoscaler && len(n.helpers) > 0:
			n.keep(Helper, n.helpers[0])
		case settings.DrainPolicy == BlockForEviction && n.replica != "":
			n.keep(ReplicaOnNode, n.replica)
		case n.leaving == Gone:
		case !settings.ClusterAutoscaler && !settings.opens(n.leaving):
			n.keep(AutoscalerOff, "")
		case settings.DrainPolicy != AlwaysAllow && n.leaving == NotLeaving && n.inUse != "":
			n.keep(ReplicaInUse, n.inUse)
		}
	}
}

// keepLastReplicas keeps every node with data of a volume that has no healthy replica on a node that stays. Longhorn
// deletes replicas that are evicted in the moment in which another one is whole: then that is the last, and nobody has
// time to close its node. So it is closed before.
func (s *surveyed) keepLastReplicas() {
	if s.world.Settings.DrainPolicy == AlwaysAllow {
		return
	}
	for _, v := range s.volumes {
		if v.moves || s.willMove(v) {
			for _, n := range v.rebuilds {
				n.keep(Rebuilding, v.name)
			}
		}
		if len(v.keepers) > 0 {
			continue
		}
		for _, h := range v.holders {
			if h.counts {
				h.node.keep(LastReplica, v.name)
			}
		}
	}
}

// letGo opens the nodes that are leaving and have nothing to lose, one after the other where they share a volume.
func (s *surveyed) letGo() {
	var candidates []*node
	for _, n := range s.nodes {
		if s.world.Settings.opens(n.leaving) {
			candidates = append(candidates, n)
		}
	}
	slices.SortFunc(candidates, func(a, b *node) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.name, b.name))
	})
	free := s.world.Settings.DrainPolicy == AlwaysAllow
	goes, away := map[*volume]*node{}, map[*volume][]*node{}
	for _, name := range s.world.Away {
		if n := s.byName[name]; n != nil {
			for _, v := range n.volumes {
				away[v] = append(away[v], n)
			}
		}
	}
	for _, n := range candidates {
		if n.state == Kept && n.reason != "" {
			continue
		}
		if free {
			n.open(UserAllows, "")
			continue
		}
		if !s.mayGo(n, goes, away) {
			continue
		}
		n.open(s.nothingLost(n))
		for _, v := range n.volumes {
			goes[v] = n
		}
	}
}

// mayGo tells whether each volume on the node has a replica on another one that is kept, and none of them has one on a
// node that goes already.
func (s *surveyed) mayGo(n *node, goes map[*volume]*node, away map[*volume][]*node) bool {
	for _, v := range n.volumes {
		first := goes[v]
		if i := slices.IndexFunc(away[v], func(x *node) bool { return s.waitsFor(n, x) }); i >= 0 {
			first = away[v][i]
		}
		if first != nil && first != n {
			n.keep(SharesVolume, first.name)
			return false
		}
	}
	for _, v := range n.counting {
		if !v.keptBeside(n) {
			n.keep(LastReplica, v.name)
			return false
		}
	}
	return true
}

// waitsFor tells whether a node waits until another one is back. Two that are leaving and away would wait for each
// other for ever. The one begins of which nothing is left that could be evicted: it takes nothing away. Only if there
// is something left of both, one that is dead begins; it may come back at any time, but so may the other.
func (s *surveyed) waitsFor(n, other *node) bool {
	begins := (n.ended || !n.serves && !other.ended) && other.leaving != NotLeaving &&
		!slices.Contains(s.world.Went, other.name)
	return n != other && !begins
}

// nothingLost is why a node may go: all that is on it is elsewhere, too, or the policy lets it go with what is stopped.
func (s *surveyed) nothingLost(n *node) (why Reason, subject string) {
	for _, v := range n.volumes {
		if !v.keptBeside(n) {
			return ReplicaStopped, v.name
		}
	}
	return NothingToLose, ""
}

// keptBeside tells whether a node other than n keeps a healthy replica.
func (v *volume) keptBeside(n *node) bool {
	return slices.ContainsFunc(v.keepers, func(k *node) bool { return k != n && k.state == Kept && k.reason != "" })
}

// decision turns the survey into answers.
func (s *surveyed) decision(kept []string) Decision {
	d := Decision{Kept: kept, OneMore: true}
	for _, n := range s.nodes {
		v := s.verdict(n)
		d.OneMore = d.OneMore && v.State != Open
		d.Nodes = append(d.Nodes, v)
	}
	for _, m := range s.world.Managers {
		d.Managers = append(d.Managers, s.managerVerdict(m))
	}
	slices.SortFunc(d.Managers, func(a, b Verdict) int { return cmp.Compare(a.Manager, b.Manager) })
	return d
}

func (s *surveyed) verdict(n *node) NodeVerdict {
	v := NodeVerdict{
		Node: n.name, Leaving: n.leaving, State: n.state, Reason: n.reason, Subject: n.subject,
		Conflicts: n.conflicts(), Alone: n.alone(), Evict: n.evict,
	}
	autoscaler := s.world.Settings.ClusterAutoscaler
	if n.leaving == Gone {
		return v
	}
	if n.state == Spare {
		v.Reason = NothingToLose
	}
	v.Stay = autoscaler && n.state == Kept && !s.willGo(n)
	if len(n.helpers) > 0 && autoscaler && n.state != Open {
		v.Stay = true
		if n.state == Spare {
			v.Reason, v.Subject = Helper, n.helpers[0]
		}
	}
	return v
}

// willGo tells whether a node that is kept goes once it is asked to, so that an autoscaler need not be held back from
// it: it waits for its turn, or its replicas are moved then. If one were held back from it, nobody would ask.
func (s *surveyed) willGo(n *node) bool {
	switch n.reason {
	case SharesVolume, Evicting:
		return true
	case Cover, ReplicaOnNode:
		return s.world.EvictOnRemoval && n.inUse == ""
	default:
		return false
	}
}

// managerVerdict is the answer about an instance manager: its node's, unless its own state or kind says otherwise.
func (s *surveyed) managerVerdict(m Manager) Verdict {
	v := Verdict{Manager: m.Name, Node: m.Node, State: Kept}
	n := s.byName[m.Node]
	switch {
	case n == nil || n.leaving == Gone:
		v.Reason, v.Subject = Malformed, "node "+quote(m.Node)+" does not exist"
		if m.Node != "" {
			v.Reason, v.Subject = NotRunning, m.Name
		}
	case n.state == Open:
		v.State, v.Reason, v.Subject = Open, n.reason, n.subject
	case m.State != Running:
		v.Reason, v.Subject = NotRunning, m.Name
	case m.Kind == Engine && len(m.Engines) == 0 && n.leaving != NotLeaving && s.world.Settings.opens(n.leaving):
		v.State, v.Reason = Open, NoEngine
	case m.Kind == Engine && len(m.Engines) == 0 && n.leaving == NotLeaving && s.world.Settings.ClusterAutoscaler:
		v.State, v.Reason = Spare, NoEngine
	default:
		v.State, v.Reason, v.Subject = n.state, n.reason, n.subject
	}
	return v
}
