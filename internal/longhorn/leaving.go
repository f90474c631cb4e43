package longhorn

import "github.com/lockkeeper/lockkeeper/internal/leaving"

// Leaving is how a node says that it is about to leave.
type Leaving = leaving.Way

// The ways. NotLeaving is a node that stays.
const (
	NotLeaving   = leaving.Not
	Cordoned     = leaving.Cordoned
	RemovalTaint = leaving.Removal
	Disrupted    = leaving.Disrupted
	Deleting     = leaving.Deleting
	Gone         = leaving.Gone
)

// leaving tells whether a node is about to leave: what is on it protects nothing any more.
func (w World) leaving(n Node) Leaving {
	if n.Cordoned && !n.Deleting && !w.Settings.ClusterAutoscaler {
		return Cordoned // which says more than a taint that Longhorn is not to know
	}
	return n.signs().How(w.Now, w.TaintExpiry)
}

func (n Node) signs() leaving.Signs {
	return leaving.Signs{
		Cordoned: n.Cordoned, Deleting: n.Deleting, Tainted: n.HasRemovalTaint, Taint: n.RemovalTaint,
		Disrupted: n.Disrupted,
	}
}

// returns tells whether a node is about to leave and nobody has said that its data goes with it. That a taint is not to
// be known while Longhorn's setting is off says who is let go, and brings no data back.
func (w World) returns(n Node) bool { return n.signs().How(w.Now, w.TaintExpiry) == Cordoned }

// opens tells whether a node may be let go because it is leaving in this way. Longhorn itself knows cordoned nodes
// only: the taints count for as long as its setting for autoscalers is on.
func (s Settings) opens(l Leaving) bool {
	switch l {
	case Cordoned, Deleting:
		return true
	case RemovalTaint, Disrupted:
		return s.ClusterAutoscaler
	default:
		return false
	}
}

// counts tells whether a replica matters to its node. Where the policy allows it, a drain does not wait for replicas
// without a process if the node returns; a node that is removed takes them with it, and so does one that stays and
// could be chosen for removal.
func (s Settings) counts(r Replica, returns bool) bool {
	if !r.used() {
		return false
	}
	return s.DrainPolicy != AllowIfReplicaIsStopped || !returns || r.Desired != Stopped || r.Current != Stopped
}

func (p DrainPolicy) known() bool {
	for _, known := range DrainPolicies {
		if p == known {
			return true
		}
	}
	return false
}
