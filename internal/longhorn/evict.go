package longhorn

import "slices"

// This file is what Longhorn is told about the replicas on nodes that are about to be removed, where a policy says that
// they are to be moved.

// Eviction is what Longhorn is told about the replicas on a node.
type Eviction string

// The evictions. NotEvicted is what a node is that nobody removes: what others have told Longhorn of it stays.
const (
	NotEvicted Eviction = ""
	// Closed: the node gets no more replicas.
	Closed Eviction = "Closed"
	// Evicted: nor does it keep those that it has.
	Evicted Eviction = "Evicted"
)

// empties tells whether replicas that keep a node are moved to other ones.
func (s *surveyed) empties(n *node) bool {
	return s.world.EvictOnRemoval && n.leaving != Cordoned && s.world.Settings.opens(n.leaving)
}

// willMove tells whether a volume is about to be moved by this decision: all its healthy replicas are on nodes that are
// leaving, and one of these is emptied.
func (s *surveyed) willMove(v *volume) bool {
	return len(v.keepers) == 0 && slices.ContainsFunc(v.holders, func(h holder) bool { return s.empties(h.node) })
}

// evict says what Longhorn is told about the nodes that are leaving. They get no more replicas: what another one loses
// would come there. What would keep one that is removed is moved. Once Longhorn has begun with that it goes on until
// nothing of it is left there: it deletes what is evicted first, and of a volume with one copy too many it may delete
// any. Meanwhile nobody goes at rest: a spare node could be given the last copy, and be gone before anybody has seen
// that.
func (s *surveyed) evict() (moves bool) {
	for _, n := range s.nodes {
		keeps := n.state == Kept && (n.reason == LastReplica || n.reason == ReplicaOnNode)
		switch {
		case !s.world.EvictOnRemoval || !s.world.Settings.opens(n.leaving):
		case !s.empties(n):
			n.evict = Closed
		case keeps:
			what := "volume "
			if n.reason == ReplicaOnNode {
				what = "replica "
			}
			n.evict, n.reason, n.subject, moves = Evicted, Evicting, what+n.subject, true
		case n.evicts:
			n.evict, moves = Evicted, true
		default:
			n.evict = Closed
		}
	}
	return moves
}
