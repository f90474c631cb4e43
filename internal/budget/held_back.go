package budget

import (
	"slices"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file lets the fence of a node go on while other nodes are lost, too, that are to be fenced.

// bearing is the input as a claim may take it: that of a fence bears with nodes that are held back.
func (in Input) bearing(c lease.Claim) Input { return in.bearingBut(c, nil) }

// bearingToEnd is bearing, for whoever asks whether a claim may go back. That of a job whose own node is to be fenced
// bears with it, too: the fence claims by itself what it needs, and may have to wait for another one, which waits for
// the claim.
func (in Input) bearingToEnd(c lease.Claim) Input {
	if in.ToBeFenced(c.Node) {
		return in.Bearing()
	}
	return in.bearing(c)
}

// ToBeFenced tells whether a node is lost and held back.
func (in Input) ToBeFenced(node string) bool {
	n, _ := in.View.Node(node)
	return n.Lost > 0 && slices.Contains(in.HeldBack, node)
}

// bearingToOpen is bearing, for whoever asks whether a failure domain may open. The daemons of a lost node whose pods
// are to end are as good as gone: when the control plane is reached again, they are. So that node goes first, and no
// other failure domain opens before. If those of the claim's own node are to end, too, there is no better order, and
// both would go together at that moment whatever is done: its Machine may go, and nothing opens for it.
func (in Input) bearingToOpen(c lease.Claim) Input {
	if in.Shuts && in.allToEnd(c.Node) || !in.Shuts && in.toEnd(c.Node) {
		return in.bearing(c)
	}
	n, _ := in.View.Node(c.Node)
	return in.bearingBut(c, func(domain string, x storage.Daemon) bool {
		return x.Unsettled() && domain != c.Domain.Name && !n.In(domain) && (in.Shuts || !in.quorumNeeds(x.Node))
	})
}

// shut is the failure domain of a fence that holds the lease, and of which nothing must open: beside who would go
// there, daemons of another failure domain are as good as gone, for which the fence does not wait. Zero: there is none.
func (in Input) shut() (none storage.FailureDomain) {
	if !in.Shuts {
		return none
	}
	for _, c := range in.Lease.Holders {
		if c.Priority != lease.PriorityFencing || c.OfMon() || !in.allToEnd(c.Node) {
			continue
		}
		n, _ := in.View.Node(c.Node)
		for _, d := range in.View.Domains {
			beside := d.Name != c.Domain.Name && !n.In(d.Name)
			if beside && slices.ContainsFunc(d.Troubled, func(x storage.Daemon) bool {
				return x.Unsettled() && in.ToBeFenced(x.Node)
			}) {
				return c.Domain
			}
		}
	}
	return none
}

// allToEnd tells whether no daemon of a node serves but in pods that are to end.
func (in Input) allToEnd(node string) bool {
	n, found := in.View.Node(node)
	if !found || !in.toEnd(node) {
		return false
	}
	daemons, _ := n.Counts()
	ends := 0
	for _, d := range in.View.Domains {
		for _, x := range d.Troubled {
			if x.Node == node && x.Down() {
				ends++
			}
		}
	}
	return ends >= daemons && !slices.ContainsFunc(in.View.Mons, func(m storage.Mon) bool {
		return m.Node == node && m.InQuorum && !monToEnd(m)
	})
}

// bearingBut bears with all but the daemons that but names; nil names none.
func (in Input) bearingBut(c lease.Claim, but func(domain string, x storage.Daemon) bool) Input {
	if c.Priority != lease.PriorityFencing || c.OfMon() {
		return in
	}
	return in.bearingAllBut(c.Node, but)
}

// quorumNeeds tells whether the quorum would be lost with the mons of a node.
func (in Input) quorumNeeds(node string) bool {
	here, left := 0, 0
	for _, m := range in.View.Mons {
		switch {
		case !m.InQuorum:
		case m.Node == node:
			here++
		default:
			left++
		}
	}
	return here > 0 && !quorum.Has(len(in.View.Mons), left)
}

// toEnd tells whether daemons of a node serve in pods that are to end.
func (in Input) toEnd(node string) bool {
	mon := slices.ContainsFunc(in.View.Mons, func(m storage.Mon) bool { return m.Node == node && monToEnd(m) })
	return mon || slices.ContainsFunc(in.View.Domains, func(d storage.Domain) bool {
		return slices.ContainsFunc(d.Troubled, func(x storage.Daemon) bool { return x.Node == node && x.Unsettled() })
	})
}

func monToEnd(m storage.Mon) bool { return m.InQuorum && m.Pod.Leaving() }

// MonsToEnd are the mons of nodes that are lost and held back which are in quorum, in pods that are to end.
func (in Input) MonsToEnd() (names []string) {
	for _, m := range in.View.Mons {
		if monToEnd(m) && in.ToBeFenced(m.Node) {
			names = append(names, m.Name)
		}
	}
	return names
}

// Bearing is the input as any fence may take it.
func (in Input) Bearing() Input { return in.bearingAllBut("", nil) }

// bearingAllBut takes nodes that are held back for what the storage cluster says of them, and not for what Kubernetes
// does. Nodes that have lost the control plane alone, and serve, would keep each other's failure domains closed for
// ever: one that is lost may go at any moment. But these go when their own fences have their turn, and not before; and
// their daemons have to give a sign of life, as all do, before another failure domain opens. Kubernetes deletes the
// pods of a lost node after five minutes, of which nobody there hears.
func (in Input) bearingAllBut(node string, but func(domain string, x storage.Daemon) bool) Input {
	var lost []string
	for _, n := range in.View.Nodes {
		if n.Name != node && in.ToBeFenced(n.Name) {
			lost = append(lost, n.Name)
		}
	}
	if len(lost) == 0 {
		return in
	}
	in.View.Nodes, in.View.Domains = slices.Clone(in.View.Nodes), slices.Clone(in.View.Domains)
	for i := range in.View.Nodes {
		if n := &in.View.Nodes[i]; slices.Contains(lost, n.Name) {
			n.Lost = 0
		}
	}
	for i := range in.View.Domains {
		d := &in.View.Domains[i]
		d.Troubled = slices.DeleteFunc(slices.Clone(d.Troubled), func(x storage.Daemon) bool {
			return x.Up && !x.Restarting && slices.Contains(lost, x.Node) && (but == nil || !but(d.Name, x))
		})
	}
	return in
}
