package activities

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Fence holds the activities of FenceNode. None of them fences, and none lets go of a Machine: the keeper does.
type Fence struct {
	Nodes    Nodes
	Policies Policies
	Clusters StorageClusters
	Machines Machines
	Keepers  Keepers
}

// ExamineInput names a node, and the storage clusters if the caller knows them.
type ExamineInput struct {
	Node     string               `json:"node"`
	Clusters []storage.ClusterKey `json:"clusters,omitempty"`
}

// Examination is what there is to know of a node before anybody is asked to release it.
type Examination struct {
	Patient fencing.Patient `json:"patient"`
	// Clusters are those whose keepers hold the node's Machine, in the order of their keys.
	Clusters []storage.ClusterKey `json:"clusters"`
}

// ExamineNode finds a node's Machine, and whether it is to be fenced. It changes nothing. While the one policy that may
// hold it is on its way out it fails, and is tried again: nobody would begin another fence for the next policy.
func (f *Fence) ExamineNode(ctx context.Context, in ExamineInput) (out Examination, err error) {
	clusters, holders, none, err := f.concerned(ctx, in)
	if err != nil {
		return out, err
	}
	var witnesses []fencing.Witness
	for _, key := range slices.Concat(clusters, holders) {
		w, err := f.witness(ctx, key, in.Node, slices.Contains(clusters, key))
		if err != nil {
			return out, err
		}
		witnesses = append(witnesses, w)
	}
	h := fencing.Hear(witnesses, len(in.Clusters) > 0)
	switch {
	case h.Passing != "":
		return out, Unavailable("find who holds the Machine of "+in.Node, errors.New(h.Passing))
	case len(h.Clusters) == 0:
		return out, Invalid("node", in.Node, none)
	}
	return Examination{Patient: h.Patient, Clusters: h.Clusters}, nil
}

// witness asks one policy for a node.
func (f *Fence) witness(
	ctx context.Context, key storage.ClusterKey, node string, hosts bool,
) (w fencing.Witness, err error) {
	w = fencing.Witness{Cluster: key, Hosts: hosts}
	p, err := f.Policies.Policy(ctx, key)
	switch {
	case errors.Is(err, ErrNotFound):
		w.Gone = true
		return w, nil
	case err != nil:
		return w, Unavailable("read MaintenancePolicy "+key.String(), err)
	case p.Settings.Fencing == nil:
		return w, nil
	case p.Second != "" || p.Deleting:
		w.Leaves = cmp.Or(p.Second, "it is being deleted")
	}
	spec, _ := fencing.InForce(p.Settings.Fencing, p.Memory.Fencing)
	w.Patient, err = f.Machines.Patient(ctx, key, *spec, node)
	if errors.Is(err, ErrNotFound) && (w.Leaves != "" || !hosts) {
		return w, nil // without a Machine API it holds nothing
	}
	if err != nil {
		return w, Unavailable("look at the Machine of "+node, err)
	}
	w.Fences = true
	return w, nil
}

// concerned are the storage clusters with OSDs on a node, those that may hold its Machine for something else, such as a
// mon, and what it says if none does.
func (f *Fence) concerned(ctx context.Context, in ExamineInput) (
	hosted, holders []storage.ClusterKey, none string, err error,
) {
	none = "no MaintenancePolicy with storage on it names what fences nodes (spec.fencing.api), so nothing is held back"
	if len(in.Clusters) > 0 {
		return in.Clusters, nil, none, nil
	}
	hosted, answer, err := f.Nodes.PoliciesOf(ctx, in.Node)
	if err != nil {
		return nil, nil, "", Unavailable("find the storage clusters of node "+in.Node, err)
	}
	fence, err := f.Nodes.FencingPolicies(ctx)
	if err != nil {
		return nil, nil, "", Unavailable("find who may hold the Machine of node "+in.Node, err)
	}
	for _, key := range fence {
		if !slices.Contains(hosted, key) {
			holders = append(holders, key)
		}
	}
	if len(hosted) == 0 {
		none = answer.Reason
	}
	return hosted, holders, none, nil
}

// FenceInput is a job's wish to have a Machine released.
type FenceInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Target  fencing.Target     `json:"target"`
	Healing bool               `json:"healing,omitempty"`
}

// RequestFence tells the keeper of a node that is to be fenced. Asking again changes nothing.
func (f *Fence) RequestFence(ctx context.Context, in FenceInput) (struct{}, error) {
	if in.Target.WorkflowID == "" {
		info := activity.GetInfo(ctx).WorkflowExecution
		in.Target.WorkflowID, in.Target.RunID = info.ID, info.RunID
	}
	err := f.Keepers.RequestFence(ctx, in.Cluster, in.Target, in.Healing)
	var rejected *temporal.ApplicationError
	if errors.As(err, &rejected) && rejected.NonRetryable() {
		return struct{}{}, Invalid("target", in.Target.Node, rejected.Message())
	}
	if err != nil {
		return struct{}{}, Unavailable("ask the keeper of "+in.Cluster.String()+" for the release of "+in.Target.Node, err)
	}
	return struct{}{}, nil
}

// BuryInput names a node whose Machine is released, and one of its storage clusters.
type BuryInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Node    string             `json:"node"`
}

// Burial is what became of the pods of dead daemons.
type Burial struct {
	Deleted int `json:"deleted,omitempty"`
	// Kept says why none was deleted.
	Kept string `json:"kept,omitempty"`
}

// BuryPods deletes the pods of a node that Kubernetes has lost and on which nothing of the storage cluster serves any
// more, by a look of its own. Whoever fences the node evicts its pods first, and a budget that is closed because of
// another failure domain would hold up the eviction of the dead. Kubernetes itself deletes them after five minutes,
// whatever budgets say.
func (f *Fence) BuryPods(ctx context.Context, in BuryInput) (out Burial, err error) {
	n, err := f.Nodes.Node(ctx, in.Node)
	if err != nil {
		return out, Unavailable("read node "+in.Node, err)
	}
	if n.Found && n.Ready {
		return Burial{Kept: in.Node + " is ready"}, nil
	}
	c, err := f.Clusters.StorageCluster(ctx, in.Cluster)
	if err != nil {
		return out, Unavailable("connect to the storage cluster of "+in.Cluster.String(), err)
	}
	seen, err := c.Observe(ctx, Look{Nodes: []string{in.Node}, Hosting: true})
	if err != nil {
		return out, Unavailable("observe "+in.Cluster.String(), err)
	}
	if seen.View.Unavailable != "" || seen.Homeless {
		return Burial{Kept: "it is not known whether anything on it serves: " + seen.View.Unavailable}, nil
	}
	takes := fencing.Facts{View: seen.View, AskedFor: []string{in.Node}}.Takes(in.Node)
	if h := seen.Hosting[in.Node]; !takes.Nothing() || h.Running > 0 || h.Mon > 0 {
		return Burial{Kept: "daemons on it serve"}, nil
	}
	if out.Deleted, err = f.Machines.DeletePods(ctx, in.Cluster, in.Node); err != nil {
		return out, Unavailable("delete the pods of dead daemons on "+in.Node, err)
	}
	return out, nil
}
