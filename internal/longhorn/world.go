// Package longhorn decides which instance managers of a Longhorn installation may be evicted: which nodes keep their
// budgets and why, which nodes may leave and why not, and which annotations tell an autoscaler so.
//
// It is pure: what was read of Longhorn's and Kubernetes' objects comes in as a World, and a Decision goes out.
package longhorn

import "time"

// Kind is the type of an instance manager.
type Kind string

// The kinds. Longhorn 1.5 and later have one manager of both, AllInOne.
const (
	Engine   Kind = "engine"
	Replicas Kind = "replica"
	AllInOne Kind = "aio"
)

// Running is the state of an instance manager that can serve, and of a replica whose process runs.
const Running = "running"

// Stopped is the state of a replica without a process.
const Stopped = "stopped"

// Detached is the state of a volume that nobody uses. Every other one may be in use.
const Detached = "detached"

// Manager is an instance manager: one pod, in which engines and replicas run as processes.
type Manager struct {
	Name  string
	Node  string
	Kind  Kind
	State string
	// Ended tells that it has no pod, or one that is about to end: nothing of it is left that could be evicted.
	Ended bool
	// Engines are the volumes' engines that run in it, by name.
	Engines []string
}

// Volume is a volume. One that is not in the World and has replicas there counts as one that is not attached.
type Volume struct {
	Name  string
	State string
}

// Replica is one copy of a volume.
type Replica struct {
	Name   string
	Volume string
	Node   string
	// Manager is the instance manager in which it runs or ran last.
	Manager string
	// Healthy tells that it was once a whole copy, Failed that it no longer is. One that is neither has no data.
	Healthy, Failed bool
	// Evicted tells that Longhorn deletes it as soon as the volume has another whole copy.
	Evicted bool
	// Desired and Current are the states of its process.
	Desired, Current string
}

// used tells whether the replica has data, or had: a failed one may be the last that can be salvaged.
func (r Replica) used() bool { return r.Healthy || r.Failed }

// whole tells whether the replica is a copy that a volume can live on.
func (r Replica) whole() bool { return r.Healthy && !r.Failed }

// rebuilding tells whether the replica may become a whole copy. Longhorn gives it a node before it runs, and a small
// volume is whole half a second after that: too late to close the node.
func (r Replica) rebuilding() bool { return !r.used() && r.Node != "" }

// Node is a node of Kubernetes. A node on which Longhorn has replicas and which is not in the World was deleted.
type Node struct {
	Name     string
	Ready    bool
	Cordoned bool
	// Deleting tells that its object is being deleted.
	Deleting bool
	// RemovalTaint is the value of the autoscaler's taint ToBeDeletedByClusterAutoscaler: when it was set, in seconds of
	// Unix time; HasRemovalTaint tells whether there is one.
	RemovalTaint    string
	HasRemovalTaint bool
	// Disrupted tells whether Karpenter's taint karpenter.sh/disrupted is there.
	Disrupted bool
	// Pinned tells that a person holds autoscalers back from it: it will not be removed.
	Pinned bool
	// Helpers are the pods of backing-image and share managers on it.
	Helpers []string
}

// DrainPolicy is Longhorn's setting node-drain-policy.
type DrainPolicy string

// The drain policies of Longhorn 1.10. The older setting allow-node-drain-with-last-healthy-replica is AlwaysAllow.
const (
	BlockForEviction                      DrainPolicy = "block-for-eviction"
	BlockForEvictionIfContainsLastReplica DrainPolicy = "block-for-eviction-if-contains-last-replica"
	BlockIfContainsLastReplica            DrainPolicy = "block-if-contains-last-replica"
	AllowIfReplicaIsStopped               DrainPolicy = "allow-if-replica-is-stopped"
	AlwaysAllow                           DrainPolicy = "always-allow"
)

// DrainPolicies are all of them.
var DrainPolicies = []DrainPolicy{
	BlockForEviction, BlockForEvictionIfContainsLastReplica, BlockIfContainsLastReplica, AllowIfReplicaIsStopped,
	AlwaysAllow,
}

// Settings are the settings of Longhorn that decide.
type Settings struct {
	// ClusterAutoscaler is kubernetes-cluster-autoscaler-enabled.
	ClusterAutoscaler bool
	// DrainPolicy is node-drain-policy. One that is none of DrainPolicies counts as BlockForEviction, the strictest.
	DrainPolicy DrainPolicy
}

// World is what was read.
type World struct {
	Now time.Time
	// TaintExpiry is the age from which the autoscaler's taint does not count: such taints are sometimes forgotten.
	TaintExpiry time.Duration
	// EvictOnRemoval: replicas that would keep a node which is about to be removed are moved to other nodes.
	EvictOnRemoval bool
	Settings       Settings
	// Version is that of Longhorn, as it tells it.
	Version  string
	Nodes    []Node
	Managers []Manager
	Volumes  []Volume
	Replicas []Replica
	// Kept are the nodes that the decision before kept for the sake of detached volumes. They stay in the cover unless
	// it can be smaller.
	Kept []string
	// Going are the nodes that go before others that are leaving: first those that were allowed to and have not left yet,
	// then those that wait, in the order of their queue.
	Going []string
	// Away are nodes that went and are not back, whether or not they still announce that they leave. Nobody goes who
	// shares a volume with one of them. Went are those of them that went in a turn which is not over.
	Away, Went []string
	// Faults are the objects that could not be read.
	Faults []Fault
}

// Fault is an object that is not as it should be. What it may be about stays protected.
type Fault struct {
	// Object is its kind and name, Field the path of the field.
	Object, Field string
	// Value is what stands there, Allowed what could.
	Value, Allowed string
	// Node is the node that stays for its sake; "": every node stays.
	Node string
}

func (f Fault) String() string {
	return f.Object + ": " + f.Field + ": " + quote(f.Value) + ": allowed are " + f.Allowed
}
