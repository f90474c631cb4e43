package activities

import (
	"context"
	"errors"
	"slices"
	"strings"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Fence holds the activities of FenceNode. None of them fences, and none lets go of a Machine: the keeper does.
type Fence struct {
	Nodes    Nodes
	Policies Policies
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

// ExamineNode finds a node's Machine, and whether it is to be fenced. It changes nothing.
func (f *Fence) ExamineNode(ctx context.Context, in ExamineInput) (out Examination, err error) {
	clusters := in.Clusters
	if len(clusters) == 0 {
		found, answer, err := f.Nodes.PoliciesOf(ctx, in.Node)
		if err != nil {
			return out, Unavailable("find the storage clusters of node "+in.Node, err)
		}
		if clusters = found; len(clusters) == 0 {
			return out, Invalid("node", in.Node, answer.Reason)
		}
	}
	for _, key := range clusters {
		p, err := f.Policies.Policy(ctx, key)
		switch {
		case errors.Is(err, ErrNotFound):
			continue
		case err != nil:
			return out, Unavailable("read MaintenancePolicy "+key.String(), err)
		case p.Settings.Fencing == nil || p.Second != "" || p.Deleting:
			continue
		}
		patient, err := f.Machines.Patient(ctx, key, *p.Settings.Fencing, in.Node)
		if err != nil {
			return out, Unavailable("look at the Machine of "+in.Node, err)
		}
		out.Clusters = append(out.Clusters, key)
		out.Patient = join(out.Patient, patient)
	}
	if len(out.Clusters) == 0 {
		return out, Invalid("node", in.Node, "no MaintenancePolicy with storage on it names what fences nodes "+
			"(spec.fencing.api), so nothing is held back")
	}
	slices.SortFunc(out.Clusters, func(a, b storage.ClusterKey) int { return strings.Compare(a.String(), b.String()) })
	return out, nil
}

// join is what several policies say of one node: it is unhealthy if any of them finds it so.
func join(a, b fencing.Patient) fencing.Patient {
	if a.Machine.UID == "" {
		a.Machine, a.Deleting = b.Machine, b.Deleting
	}
	if !b.Unhealthy.IsZero() && (a.Unhealthy.IsZero() || b.Unhealthy.Before(a.Unhealthy)) {
		a.Unhealthy, a.Condition = b.Unhealthy, b.Condition
	}
	if !b.Next.IsZero() && (a.Next.IsZero() || b.Next.Before(a.Next)) {
		a.Next = b.Next
	}
	a.DisksGo = a.DisksGo || b.DisksGo
	a.Found, a.Ready, a.BootID, a.UID = b.Found, b.Ready, b.BootID, b.UID
	return a
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

