package starter

import (
	"time"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Snapshot is what matters to a keeper of everything that Kubernetes knows about its storage cluster. Two equal ones
// call for nothing.
type Snapshot struct {
	Kind       storage.Kind
	Generation int64 // of the policy's spec
	Deleting   bool  // the policy waits for its keeper to let it go
	// Invalid says which field of the policy's spec makes no sense; then nothing below is filled in.
	Invalid string
	// Second names another policy that is in charge of the same storage cluster, because it was first.
	Second string
	// Rival names a younger policy whose keeper has not yet taken back what it did for the same storage cluster.
	Rival string
	// Claimed: the policy's own status says that its keeper looks after the storage cluster.
	Claimed bool

	// Opened: our budgets leave a failure domain out.
	Opened bool

	Jobs    map[string]bool   // nodes whose drain holds the lease, or is named among those who wait for it
	OSDs    map[string]OSD    // by name, "osd.3"
	Nodes   map[string]Node   // the nodes of OSDs that are not simply in service, by name
	Budgets map[string]Budget // of the policy's namespace, by name
	Daemons map[string]Daemon // the other daemons, by kind and group: "mon", "mds myfs"
	// MarkedTemplates are workloads whose pod template has a mark: their pods would be born with it.
	MarkedTemplates []string
	// LetGo are the pods of OSDs and mons that a person has let go out of turn, sorted: "a b c".
	LetGo string
}

// OSD is what Kubernetes knows of one OSD.
type OSD struct {
	// Pod is the best state of its pods: while one is replaced there is an old and a new one.
	Pod storage.PodState
	// Beside: there is another pod beside the ready one, so the keeper takes neither for the OSD's only one.
	Beside bool
	// Node runs the pod, or is the only one that could, or ran the last one. "": not known.
	Node string
	// Replacing: its disk is being replaced, so nobody counts on it.
	Replacing bool
	// Life names the pod, and how often its containers were started again. Another one is another life of the OSD.
	Life string
	// Mark is the mark on the pod; one that names another life is false.
	Mark string
	// Open: its failure domain is the one that our budgets leave out, so its pods come and go.
	Open bool
}

// FalseMark tells whether the pod has a mark that it must not have: the budgets count it as if it had been proved.
func (o OSD) FalseMark() bool { return o.Mark != "" && (o.Mark != o.Life || o.Pod != storage.PodReady) }

// Node is why a node is not simply in service. The zero Node is.
type Node struct {
	Cordoned bool
	Tainted  string    // the autoscaler's taint that announces its removal, as long as it counts
	Expires  time.Time // when it stops to count; zero: never
	Gone     bool      // the Node object is deleted
	NotReady bool
}

// Leaving tells whether somebody announced, or already carried out, the disruption of this node.
func (n Node) Leaving() bool { return n.Cordoned || n.Tainted != "" || n.Gone }

// nextExpiry is when the first removal taint stops to count; zero: none does.
func nextExpiry(nodes map[string]Node) (next time.Time) {
	for _, n := range nodes {
		if !n.Expires.IsZero() && (next.IsZero() || n.Expires.Before(next)) {
			next = n.Expires
		}
	}
	return next
}

// Budget is a PodDisruptionBudget: what it asks for, and who asked last.
type Budget struct {
	Spec   string // as JSON
	Writer string // the field manager of the last change to the spec
	// Generation rises with every change of the spec.
	Generation int64
	// Daemon is the kind that the budget is about, if it is lockkeeper's: "osd", "mon", "mgr".
	Daemon string
	// Ours: lockkeeper created it. Somebody else's matters as well: a pod under two budgets cannot be evicted at all.
	Ours bool
	// Empty: it selects no pod.
	Empty bool
}

// Daemon is a group of interchangeable daemons.
type Daemon struct {
	Replicas int // wanted by their workloads
	Ready    int // those that are not may have nowhere to run
	// Mons are those of mons that have a pod which is not on its way out, sorted: "a b c". One that has left the monmap
	// may go as long as it has one.
	Mons string
	// Home is where a single manager could run if it had to go, see budget.Home.
	Home string
}

// serving sorts pod states by what a change between them means to others. A pod that goes from Terminating to Pending
// was replaced in the meantime; its OSD has been away all along.
func serving(s storage.PodState) storage.PodState {
	if s == storage.PodTerminating {
		return storage.PodPending
	}
	return s
}

// rank orders pod states by how much they say about the OSD: the one that serves speaks for it.
func rank(s storage.PodState) int {
	switch s {
	case storage.PodReady:
		return 4
	case storage.PodNotReady:
		return 3
	case storage.PodPending:
		return 2
	case storage.PodTerminating:
		return 1
	default:
		return 0
	}
}
