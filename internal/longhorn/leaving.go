package longhorn

import (
	"strconv"
	"time"
)

// DefaultTaintExpiry is the age from which the autoscaler's taint does not count. The autoscaler gives up a node after
// two minutes of refused evictions and ten of graceful termination.
const DefaultTaintExpiry = time.Hour

// leaving tells whether a node is about to leave: what is on it protects nothing any more.
func (w World) leaving(n Node) Leaving {
	switch {
	case n.Deleting:
		return Deleting
	case n.Cordoned && !w.Settings.ClusterAutoscaler: // which says more than a taint that Longhorn is not to know
		return Cordoned
	case n.HasRemovalTaint && w.removalTaintCounts(n.RemovalTaint):
		return RemovalTaint
	case n.Disrupted:
		return Disrupted
	case n.Cordoned:
		return Cordoned
	default:
		return NotLeaving
	}
}

// removalTaintCounts tells whether the autoscaler's taint is recent. One without a time counts: who reads it wrongly
// would take a node for safe that is about to be deleted.
func (w World) removalTaintCounts(value string) bool {
	seconds, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return true
	}
	expiry := w.TaintExpiry
	if expiry <= 0 {
		expiry = DefaultTaintExpiry
	}
	return w.Now.Sub(time.Unix(seconds, 0)) < expiry
}

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

// counts tells whether a replica matters to a node that leaves in this way. Where the policy allows it, a drain does
// not wait for replicas without a process; a node that is removed takes them with it, and so does one that stays and
// could be chosen for removal.
func (s Settings) counts(r Replica, l Leaving) bool {
	if !r.used() {
		return false
	}
	return s.DrainPolicy != AllowIfReplicaIsStopped || l != Cordoned || r.Desired != Stopped || r.Current != Stopped
}

func (p DrainPolicy) known() bool {
	for _, known := range DrainPolicies {
		if p == known {
			return true
		}
	}
	return false
}
