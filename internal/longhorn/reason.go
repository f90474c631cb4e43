package longhorn

import (
	"fmt"
	"strconv"
)

// Reason is why a node keeps its budget, or may leave.
type Reason string

// Reasons to keep a budget.
const (
	// EngineRunning: a volume is attached to the node.
	EngineRunning Reason = "EngineRunning"
	// ReplicaInUse: a volume that is attached elsewhere writes to a replica on the node.
	ReplicaInUse Reason = "ReplicaInUse"
	// LastReplica: no other node that stays has a healthy replica of a volume.
	LastReplica Reason = "LastReplica"
	// Evicting: the node is about to be removed, and replicas that keep it are moved to other nodes.
	Evicting Reason = "Evicting"
	// Rebuilding: all healthy replicas of a volume are evicted from other nodes, and this one is to have the next.
	Rebuilding Reason = "Rebuilding"
	// Cover: the node keeps its budget for the detached volumes that have a replica on it, so that others need not.
	Cover Reason = "Cover"
	// AutoscalerOff: Longhorn's setting is off, and every instance manager is protected until its node is cordoned.
	AutoscalerOff Reason = "AutoscalerOff"
	// ReplicaOnNode: the drain policy keeps every node on which there is a replica.
	ReplicaOnNode Reason = "ReplicaOnNode"
	// SharesVolume: another node that is leaving has a replica of the same volume, and goes first.
	SharesVolume Reason = "SharesVolume"
	// NotRunning: the instance manager does not run, and its budget stays as it is.
	NotRunning Reason = "NotRunning"
	// Malformed: something could not be read.
	Malformed Reason = "Malformed"
	// Helper: a backing-image or share manager runs on the node.
	Helper Reason = "Helper"
)

// Reasons to let go.
const (
	// NothingToLose: all that is on the node is elsewhere, too, or empty.
	NothingToLose Reason = "NothingToLose"
	// ReplicaStopped: the drain policy lets a node that is drained, and not removed, go with a last replica in which no
	// process runs. The volume cannot be used until the node is back.
	ReplicaStopped Reason = "ReplicaStopped"
	// UserAllows: the drain policy always-allow.
	UserAllows Reason = "UserAllows"
	// NoEngine: the instance manager is for engines alone, and has none.
	NoEngine Reason = "NoEngine"
)

func quote(s string) string { return strconv.Quote(s) }

// Sentence is what a reason means for a node, in words. subject is the volume, node or pod that the reason names.
func (r Reason) Sentence(subject string) string {
	switch r {
	case EngineRunning:
		return fmt.Sprintf("engine %s runs here: detach its volume, or move its workload to another node", subject)
	case ReplicaInUse:
		return fmt.Sprintf("volume %s is attached elsewhere and writes to its replica here", subject)
	case LastReplica:
		return fmt.Sprintf("volume %s has its last healthy replica here: attach it elsewhere, which makes another one, or "+
			"have it evicted from this node", subject)
	case Evicting:
		return fmt.Sprintf("Longhorn is asked to move %s to another node, and this one stays until it has: if that takes "+
			"long, no other node has room for it", subject)
	case Rebuilding:
		return fmt.Sprintf("volume %s is being rebuilt here: those on other nodes are evicted", subject)
	case Cover:
		return fmt.Sprintf("keeps detached volumes such as %s, so that the other nodes with their replicas may leave",
			subject)
	case AutoscalerOff:
		return "Longhorn's setting kubernetes-cluster-autoscaler-enabled is off: a node may leave when it is cordoned"
	case ReplicaOnNode:
		return fmt.Sprintf("replica %s is here, and Longhorn's setting node-drain-policy is %s", subject, BlockForEviction)
	case SharesVolume:
		return fmt.Sprintf("waits for node %s, which is leaving or not back yet, and has a replica of the same volume",
			subject)
	case NotRunning:
		return fmt.Sprintf("instance manager %s does not run", subject)
	case Malformed:
		return "something could not be read: " + subject
	case Helper:
		return fmt.Sprintf("pod %s runs here and must not be removed with the node", subject)
	case NothingToLose:
		return "every volume on it has a healthy replica on a node that stays"
	case ReplicaStopped:
		return fmt.Sprintf("volume %s is detached and cannot be used until the node is back, and Longhorn's setting "+
			"node-drain-policy is %s", subject, AllowIfReplicaIsStopped)
	case UserAllows:
		return fmt.Sprintf("Longhorn's setting node-drain-policy is %s: volumes may lose their last replica", AlwaysAllow)
	case NoEngine:
		return "no volume is attached here"
	default:
		return string(r)
	}
}
