package activities

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Target is a node with storage, as it was when a job resolved it.
type Target struct {
	Hosted
	// Others is the storage of other clusters on the node. All are in the order of their keys.
	Others []Hosted `json:"others,omitempty"`
	Node   string   `json:"node"`
	UID    string   `json:"uid,omitempty"` // of the Node object; empty when it is gone
	BootID string   `json:"bootID,omitempty"`
	// Cordoned before the job did anything: then it is not the job's to uncordon.
	Cordoned bool `json:"cordoned,omitempty"`
	Gone     bool `json:"gone,omitempty"`
}

// Hosted is the storage of one cluster on a node.
type Hosted struct {
	Cluster storage.ClusterKey    `json:"cluster"`
	Domain  storage.FailureDomain `json:"domain"`
	Hosts   []string              `json:"hosts"` // the node's buckets in the storage cluster's topology; mostly one
	Daemons []string              `json:"daemons"`
	// Turn is for how long the node may be open, while others wait, before any of its daemons goes down.
	Turn time.Duration `json:"turn,omitempty"`
	// TaintExpiry is the age from which an autoscaler's taint does not count; 0: an hour.
	TaintExpiry time.Duration `json:"taintExpiry,omitempty"`
	// Detach: what somebody attached to the node by hand is to be detached when it leaves.
	Detach bool `json:"detach,omitempty"`
}

// Storage is that of all clusters on the node.
func (t Target) Storage() []Hosted { return append([]Hosted{t.Hosted}, t.Others...) }

// NodeState is what Kubernetes says of a node.
type NodeState struct {
	Found    bool   `json:"found"`
	UID      string `json:"uid,omitempty"`
	BootID   string `json:"bootID,omitempty"`
	Cordoned bool   `json:"cordoned,omitempty"`
	Tainted  string `json:"tainted,omitempty"` // an autoscaler's removal taint that counts
	Ready    bool   `json:"ready,omitempty"`
	// DrivesOff are the keys of the taints that drive its pods off (leaving.DrivesOff).
	DrivesOff []string `json:"drivesOff,omitempty"`
	// Leaving are all signs of its leaving, whether they count by now or not.
	Leaving leaving.Signs `json:"leaving,omitzero"`
}

// EvictionOptions are kubectl drain's, by their names there.
type EvictionOptions struct {
	GracePeriodSeconds *int   `json:"gracePeriodSeconds,omitempty"` // nil: each pod's own
	PodSelector        string `json:"podSelector,omitempty"`
	DeleteEmptyDirData bool   `json:"deleteEmptyDirData,omitempty"`
	Force              bool   `json:"force,omitempty"`
}

// Eviction says which pods of a node are to go, and in which order.
type Eviction struct {
	Node    string
	Options EvictionOptions
	// Taint is the key of a taint of the node: those pods go that do not tolerate it, whatever the options say, since it
	// asks nobody either. "": those that a drain evicts.
	Taint   string
	Storage []StoragePods // of each storage cluster on the node
}

// StoragePods tells the pods of a storage cluster from others. Daemons, Mons and Managers are label selectors. Mons and
// managers stay until the storage daemons of their node have stopped. That those are down is for the mons to agree on,
// and while they elect a leader instead, clients wait. And without a manager nobody says whether they may stop. "":
// none.
type StoragePods struct {
	// Namespace is where the storage cluster's pods run. Their emptyDirs hold sockets and scratch files, never data, so
	// that EvictionOptions.DeleteEmptyDirData is about everybody else's.
	Namespace               string
	Daemons, Mons, Managers string
}

// EvictionProgress is one pass over the node's pods. Refused are those that a budget kept.
type EvictionProgress struct {
	Total     int      `json:"total"`     // pods that had to go when the drain began
	Remaining int      `json:"remaining"` // of those, still there
	Refused   int      `json:"refused,omitempty"`
	Blocked   []string `json:"blocked,omitempty"`
	// Ended says why evicting stopped although pods remain: the node was uncordoned or is gone, or its taint is.
	Ended string `json:"ended,omitempty"`
}

// Nodes looks at nodes and changes them the way kubectl does.
type Nodes interface {
	Node(ctx context.Context, name string) (NodeState, error)
	// AwaitNode returns the node's state as soon as it is one that is waited for. A node that is gone has the zero state.
	AwaitNode(ctx context.Context, name string, until func(NodeState) bool) (NodeState, error)
	// Cordon makes a node unschedulable, or schedulable again, unless somebody else has cordoned it since. A node that is
	// gone needs neither. It changes nothing, and returns false, if the node has another UID; "": any will do.
	Cordon(ctx context.Context, name, uid string, on bool) (same bool, err error)
	// EvictOnce asks once for the eviction of every pod that a drain would evict, and whose turn it is.
	EvictOnce(ctx context.Context, in Eviction) (EvictionProgress, error)
	// PodsGone sends a value when pods of a node have gone since the last one, until ctx ends or it can tell no more; then
	// it closes.
	PodsGone(ctx context.Context, node string) (<-chan struct{}, error)
	// PoliciesOf finds the storage clusters whose daemons the node hosts, in the order of their keys. With none the
	// answer says so.
	PoliciesOf(ctx context.Context, node string) ([]storage.ClusterKey, storage.Answer, error)
	// FencingPolicies are those that name what fences nodes, or hold Machines from when they did, in charge or not.
	FencingPolicies(ctx context.Context) ([]storage.ClusterKey, error)
}

// Keepers asks keepers for the lease.
type Keepers interface {
	// RequestLease queues the claim with the keeper of the cluster, which it starts if need be.
	RequestLease(ctx context.Context, cluster storage.ClusterKey, claim lease.Claim) error
	// RequestFence asks the keeper to release a node's Machine, or, if healing, when the data is whole after that.
	RequestFence(ctx context.Context, cluster storage.ClusterKey, target fencing.Target, healing bool) error
}

// Drain holds the activities of DrainNode.
type Drain struct {
	Nodes    Nodes
	Policies Policies
	Clusters StorageClusters
	Keepers  Keepers
}

// LeaseInput is a job's wish for the lease.
type LeaseInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Claim   lease.Claim        `json:"claim"`
}

// RequestLease queues a job with the keeper. Asking again keeps the place in the queue.
func (d *Drain) RequestLease(ctx context.Context, in LeaseInput) (struct{}, error) {
	info := activity.GetInfo(ctx).WorkflowExecution
	if in.Claim.WorkflowID == "" {
		in.Claim.WorkflowID, in.Claim.RunID = info.ID, info.RunID
	}
	err := d.Keepers.RequestLease(ctx, in.Cluster, in.Claim)
	var rejected *temporal.ApplicationError
	if errors.As(err, &rejected) && rejected.NonRetryable() {
		return struct{}{}, Invalid("claim", in.Claim.WorkflowID, rejected.Message())
	}
	if err != nil {
		return struct{}{}, Unavailable("ask the keeper of "+in.Cluster.String()+" for the lease", err)
	}
	return struct{}{}, nil
}

// LookAtNode reads a node.
func (d *Drain) LookAtNode(ctx context.Context, name string) (NodeState, error) {
	n, err := d.Nodes.Node(ctx, name)
	if err != nil {
		return NodeState{}, Unavailable("read node "+name, err)
	}
	return n, nil
}

// CordonInput says which node is to be unschedulable, and whether it still has to be the same node.
type CordonInput struct {
	Node string `json:"node"`
	UID  string `json:"uid,omitempty"`
	On   bool   `json:"on"`
}

// Cordon makes a node unschedulable, or schedulable again. A node that is gone needs neither.
func (d *Drain) Cordon(ctx context.Context, in CordonInput) (struct{}, error) {
	same, err := d.Nodes.Cordon(ctx, in.Node, in.UID, in.On)
	if err != nil {
		return struct{}{}, Unavailable("cordon node "+in.Node, err)
	}
	if !same {
		return struct{}{}, Changed("node %s is another one than when the job began (it was deleted and registered again)",
			in.Node)
	}
	return struct{}{}, nil
}

// EvictInput is one drain: what to evict, and under which grants.
type EvictInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Node    string             `json:"node"`
	UID     string             `json:"uid"`
	Options EvictionOptions    `json:"options"`
	Taint   string             `json:"taint,omitempty"` // as in Eviction
	// Token of the lease under which the pods may go. It is compared before every pass.
	WorkflowID string `json:"workflowID"`
	RunID      string `json:"runID"`
	Token      int64  `json:"token"`
	// Others are the leases of other storage clusters on the node. Nothing goes unless all of them are held.
	Others []Grant `json:"others,omitempty"`
}

// Grant is a lease that is held.
type Grant struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Token   int64              `json:"token"`
}

func (in EvictInput) grants() []Grant { return append([]Grant{{in.Cluster, in.Token}}, in.Others...) }

// Pauses between two passes while no pod goes: short at first, since most refusals end as soon as a budget is
// recomputed.
const (
	evictPauseMin = 100 * time.Millisecond
	evictPauseMax = time.Second
)

// EvictPods evicts everything that `kubectl drain` would, one bounded pass after the other, until all is gone. Before
// each pass it makes sure that the lease is still the one it was given and that the node is still cordoned: a person
// who uncordons a node in the middle of its drain wants it to stop.
func (d *Drain) EvictPods(ctx context.Context, in EvictInput) (EvictionProgress, error) {
	ctx, stop := untilWorkerStops(ctx)
	defer stop()
	gone, err := d.Nodes.PodsGone(ctx, in.Node)
	if err != nil {
		gone = nil // it only saves time
	}
	pause := evictPauseMin
	total := 0
	if last := (EvictionProgress{}); activity.HasHeartbeatDetails(ctx) && activity.GetHeartbeatDetails(ctx, &last) == nil {
		total = last.Total // of the attempt before, which may have evicted some
	}
	for {
		p, err := d.evictPass(ctx, in)
		if err != nil {
			return EvictionProgress{}, err
		}
		total = max(total, p.Total)
		p.Total = total
		if p.Remaining == 0 || p.Ended != "" {
			return p, nil
		}
		activity.RecordHeartbeat(ctx, p)
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); errors.Is(cause, errWorkerStops) {
				return p, Unavailable("evict the pods of "+in.Node, cause)
			}
			return p, ctx.Err()
		case <-time.After(evictPause(pause, p.Refused > 0 || gone == nil)):
			pause = min(pause*3/2, evictPauseMax)
		case _, open := <-gone:
			if !open {
				gone = nil
			}
		}
	}
}

// evictPause is how long to wait for the next pass at the most. Where no budget refused anything, and the watch tells
// which pods have gone, there is nothing to be asked again before one has.
func evictPause(pause time.Duration, asksAgain bool) time.Duration {
	if asksAgain {
		return pause
	}
	return evictPauseMax
}

func (d *Drain) evictPass(ctx context.Context, in EvictInput) (EvictionProgress, error) {
	n, err := d.Nodes.Node(ctx, in.Node)
	switch {
	case err != nil:
		return EvictionProgress{}, Unavailable("read node "+in.Node, err)
	case !n.Found:
		return EvictionProgress{Ended: "the node is deleted"}, nil
	case n.UID != in.UID:
		return EvictionProgress{}, Changed(
			"node %s is another one than when the drain began (it was deleted and registered again)", in.Node)
	case !n.Cordoned:
		return EvictionProgress{Ended: "the node was uncordoned"}, nil
	case in.Taint != "" && !slices.Contains(n.DrivesOff, in.Taint):
		return EvictionProgress{Ended: "the taint " + in.Taint + " is gone"}, nil
	}
	eviction := Eviction{Node: in.Node, Options: in.Options, Taint: in.Taint}
	for _, g := range in.grants() {
		p, err := d.Policies.Policy(ctx, g.Cluster)
		if errors.Is(err, ErrNotFound) {
			return EvictionProgress{}, Lost("MaintenancePolicy %s is deleted", g.Cluster)
		}
		if err != nil {
			return EvictionProgress{}, Unavailable("read MaintenancePolicy "+g.Cluster.String(), err)
		}
		if c, holds, _ := p.Memory.Lease.Find(in.WorkflowID, in.RunID); !holds || c.Token != g.Token {
			return EvictionProgress{}, Lost("the lease of %s with token %d is gone", g.Cluster, g.Token)
		}
		eviction.Storage = append(eviction.Storage, StoragePods{
			Namespace: g.Cluster.Namespace, Daemons: p.Daemons, Mons: p.Mons, Managers: p.Managers,
		})
	}
	out, err := d.Nodes.EvictOnce(ctx, eviction)
	if err != nil {
		return EvictionProgress{}, Unavailable("evict the pods of "+in.Node, err)
	}
	return out, nil
}

// AwaitNodeInput says which change of a node is waited for.
type AwaitNodeInput struct {
	Node string `json:"node"`
	UID  string `json:"uid,omitempty"`
	// AfterReboot: a new boot ID and Ready are enough, though the node is still cordoned.
	AfterReboot bool   `json:"afterReboot,omitempty"`
	BootID      string `json:"bootID,omitempty"`
	// Taint is the key of a taint that is waited for to go. Nothing else counts as a return then: the node may not be
	// cordoned yet.
	Taint string `json:"taint,omitempty"`
}

// NodeReturn is how a wait for a node ended.
type NodeReturn struct {
	Gone       bool   `json:"gone,omitempty"`       // its Node object is deleted, or is another one
	Rebooted   bool   `json:"rebooted,omitempty"`   // Ready with a new boot ID
	Uncordoned bool   `json:"uncordoned,omitempty"` // schedulable and Ready
	Untainted  bool   `json:"untainted,omitempty"`  // Ready without the taint
	BootID     string `json:"bootID,omitempty"`
}

// AwaitNode returns when the node is back in service or gone for good.
func (d *Drain) AwaitNode(ctx context.Context, in AwaitNodeInput) (NodeReturn, error) {
	ctx, stop := untilWorkerStops(ctx)
	defer stop()
	go beat(ctx)
	n, err := d.Nodes.AwaitNode(ctx, in.Node, func(n NodeState) bool {
		r := in.became(n)
		if in.Taint != "" {
			return r.Gone || r.Untainted
		}
		return r.Gone || r.Uncordoned || in.AfterReboot && r.Rebooted
	})
	if err != nil {
		return NodeReturn{}, Unavailable("watch node "+in.Node, err)
	}
	return in.became(n), nil
}

// became is what has become of the node that is waited for.
func (in AwaitNodeInput) became(n NodeState) NodeReturn {
	if !n.Found || (in.UID != "" && n.UID != in.UID) {
		return NodeReturn{Gone: true}
	}
	return NodeReturn{
		Rebooted: n.Ready && n.BootID != in.BootID, Uncordoned: n.Ready && !n.Cordoned && n.Tainted == "",
		Untainted: n.Ready && in.Taint != "" && !slices.Contains(n.DrivesOff, in.Taint), BootID: n.BootID,
	}
}
