package activities

import (
	"context"
	"errors"

	"go.temporal.io/sdk/activity"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file sets the marks on the storage daemons' pods and takes them away.

// Marking says what counts as proof.
type Marking struct {
	// Unclean: the policy's pgHealthCheckTimeout is over, so a daemon need only serve.
	Unclean bool `json:"unclean,omitempty"`
	// Most is how many pods may carry a mark; 0: as many as are proved.
	Most int `json:"most,omitempty"`
	// Held are nodes that jobs empty, as in the Look by which it was decided: who marks has to see what that one saw.
	Held []string `json:"held,omitempty"`
}

// Unmarking says whose marks go: those that have to, or all. Held is that of a Marking.
type Unmarking struct {
	All  bool     `json:"all,omitempty"`
	Held []string `json:"held,omitempty"`
}

// Marked says what became of the marks.
type Marked struct {
	Done int `json:"done"`
	Left int `json:"left,omitempty"` // pods that were not proved, or had changed
	// Reason says why some are left.
	Reason string `json:"reason,omitempty"`
}

// ReleasePodsInput names the policy whose budgets are to go. ID is the storage cluster's own.
type ReleasePodsInput struct {
	storage.ClusterKey
	ID string `json:"id,omitempty"`
}

// PodsReleased says whether the budgets are gone. Moved: they stay, since the policy wants them by now.
type PodsReleased struct {
	Moved bool `json:"moved,omitempty"`
}

// errWanted ends the removal of budgets that are wanted after all.
var errWanted = errors.New("the policy wants its budgets")

// ReleasePods takes away every mark and every budget of ours for this policy, in this order. Ten thousand marks take a
// minute, and no worker may run for hours. So before each budget goes it is asked whether the policy still wants none.
func (k *Keeper) ReleasePods(ctx context.Context, in ReleasePodsInput) (PodsReleased, error) {
	ctx, stop := busy(ctx)
	defer stop()
	progress := func(done int) { activity.RecordHeartbeat(ctx, Marked{Done: done}) }
	holds := func() error {
		p, err := k.Policies.Policy(ctx, in.ClusterKey)
		switch {
		case errors.Is(err, ErrNotFound):
			return nil
		case err != nil:
			return err
		case p.Settings.ManagePodBudgets && !p.Deleting && p.Second == "" && p.Standing(in.ID).First == "":
			return errWanted
		default:
			return nil
		}
	}
	switch err := k.Budgets.RemoveBudgets(ctx, in.ClusterKey, progress, holds); {
	case errors.Is(err, errWanted):
		return PodsReleased{Moved: true}, nil
	case err != nil:
		return PodsReleased{}, Unavailable("remove marks and PodDisruptionBudgets", err)
	default:
		return PodsReleased{}, nil
	}
}

// MarkInput is which storage cluster's pods to mark, and what counts as proof.
type MarkInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Marking
}

// MarkPods marks the pods that are proved, so that the budget at rest counts them.
func (k *Keeper) MarkPods(ctx context.Context, in MarkInput) (Marked, error) {
	ctx, stop := busy(ctx)
	defer stop()
	c, err := k.Clusters.StorageCluster(ctx, in.Cluster)
	if err != nil {
		return Marked{}, Unavailable("connect to the storage cluster", err)
	}
	out, err := c.Mark(ctx, in.Marking, func(m Marked) { activity.RecordHeartbeat(ctx, m) })
	if err != nil {
		return Marked{}, Unavailable("mark pods", err)
	}
	return out, nil
}

// UnmarkInput is of which storage cluster marks go, and which.
type UnmarkInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Unmarking
}

// UnmarkPods takes marks away. Both budgets must be closed.
func (k *Keeper) UnmarkPods(ctx context.Context, in UnmarkInput) (Marked, error) {
	ctx, stop := busy(ctx)
	defer stop()
	c, err := k.Clusters.StorageCluster(ctx, in.Cluster)
	if err != nil {
		return Marked{}, Unavailable("connect to the storage cluster", err)
	}
	out, err := c.Unmark(ctx, in.Unmarking, func(m Marked) { activity.RecordHeartbeat(ctx, m) })
	if err != nil {
		return Marked{}, Unavailable("take marks away", err)
	}
	return out, nil
}
