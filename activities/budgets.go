package activities

import (
	"context"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Budgets writes PodDisruptionBudgets.
type Budgets interface {
	// ReadBudgets reads the budgets that follow the keeper's decisions. others tells whether there are budgets in the
	// policy's namespace that are not this policy's, one of which may cover the same pods, or that have to be written anew
	// although they say what was decided.
	ReadBudgets(ctx context.Context, key storage.ClusterKey) (book budget.Book, others bool, err error)
	// ApplyBudgets makes the budgets of the storage daemons and that of the mons say what was decided. If that lets
	// anybody go, nothing is written when they have changed since in.Before was read. It returns a reason when a budget
	// that is not ours already covers the same pods, and then changes nothing there.
	ApplyBudgets(ctx context.Context, in BudgetInput) (BudgetResult, error)
	// RaiseAlarm closes all of these budgets and writes the alarm on each, whatever they say: no decision from before it
	// opens any.
	RaiseAlarm(ctx context.Context, key storage.ClusterKey, why string) error
	// ApplyStaticBudgets makes the budgets of mgr, mds, rgw and rbd-mirror follow their replicas.
	ApplyStaticBudgets(ctx context.Context, in StaticBudgetsInput) (StaticBudgetsResult, error)
	// Relocate has the storage cluster move data away from nodes that are leaving, and undoes that on all other nodes. No
	// node's data is moved before all of them get no more.
	Relocate(ctx context.Context, in RelocateInput) (RelocateResult, error)
	// TakeBackOverrides has pods wait for their turn again that a person had let go. Those that are gone are left out.
	TakeBackOverrides(ctx context.Context, key storage.ClusterKey, all []storage.Override) error
	// RemoveBudgets deletes every budget of ours for this policy, and before that every mark that they count. Before each
	// budget it asks whether that still holds, and ends with the error if not.
	RemoveBudgets(ctx context.Context, key storage.ClusterKey, progress func(done int), holds func() error) error
}

// BudgetResult says what happened to a budget.
type BudgetResult struct {
	Changed bool `json:"changed,omitempty"`
	// Book is what the budgets that follow the keeper's decisions are after the write.
	Book budget.Book `json:"book,omitempty"`
	// Conflict names a budget of somebody else that covers the same pods; with two, every eviction would fail.
	Conflict string `json:"conflict,omitempty"`
	// Moved says which budget has changed since it was read. Then what was decided is not carried out.
	Moved string `json:"moved,omitempty"`
	// Late says which API server still decides deletions by budgets of before, where deletions are guarded. Then nothing
	// was written, and Moved is set as well.
	Late string `json:"late,omitempty"`
}

// BudgetInput is what the budgets of a cluster's storage daemons and mons must say.
type BudgetInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	// Policy is the policy as the look saw it. Who has read that one has to read it no more.
	Policy PolicyVersion `json:"policy,omitzero"`
	budget.Specs
	// Before is what was read of the budgets before the look that the decision rests on; nil if it lets nobody go.
	Before budget.Book `json:"before"`
	// Fence: what was last written may yet be carried out, and must not be after this.
	Fence bool `json:"fence,omitempty"`
	// Machines is whose MachineDisruptionBudget lets nobody go any more, either; nil: it stays as it is.
	Machines *storage.Fencing `json:"machines,omitempty"`
}

// GuardPods makes the budgets of the storage daemons and the mons say what was decided, each by a single update.
func (k *Keeper) GuardPods(ctx context.Context, in BudgetInput) (BudgetResult, error) {
	if in.Machines != nil {
		defer k.holdAllMachines(ctx, in)()
	}
	r, err := k.Budgets.ApplyBudgets(ctx, in)
	if err != nil {
		return BudgetResult{}, Unavailable("update the PodDisruptionBudgets", err)
	}
	return r, nil
}

// holdAllMachines begins to close the MachineDisruptionBudget. end waits for that, but not for much longer than for the
// others. That it could not be closed is not told, and is no reason to close the others again: the look that follows
// finds what it says.
func (k *Keeper) holdAllMachines(ctx context.Context, in BudgetInput) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	held := make(chan struct{})
	go func() {
		defer close(held)
		none := 0
		_ = k.Machines.SetMax(ctx, in.Cluster, *in.Machines, &none)
	}()
	return func() {
		defer func() { <-held }()
		defer stop()
		select {
		case <-held:
		case <-time.After(time.Second):
		}
	}
}

// LeavingNodes are nodes whose other daemons may go, too, and those that must not leave.
type LeavingNodes struct {
	// Emptying: nothing but such daemons may still keep them from being empty. See budget.Emptying.
	Emptying []string `json:"emptying,omitempty"`
	// Granted: a job may empty them. See budget.GrantedNodes.
	Granted []string `json:"granted,omitempty"`
	// Stay are nodes that must not go: autoscalers are held back from them.
	Stay []string `json:"stay,omitempty"`
}

// StaticBudgetsInput is what the budgets of the other daemons depend on, beside what is read when they are applied.
type StaticBudgetsInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Policy  PolicyVersion      `json:"policy,omitzero"` // as in BudgetInput
	LeavingNodes
}

// StaticBudgetsResult says what happened to the budgets of the other daemons, and what they depended on.
type StaticBudgetsResult struct {
	Changed bool `json:"changed,omitempty"`
	// Conflict is as in BudgetResult.
	Conflict string `json:"conflict,omitempty"`
	// Hosts are the nodes on which such daemons are: as long as others leave, nothing changes. HostsKnown: these are all.
	Hosts      []string `json:"hosts,omitempty"`
	HostsKnown bool     `json:"hostsKnown,omitempty"`
}

// GuardOthers makes the budgets of the other daemons follow their replicas.
func (k *Keeper) GuardOthers(ctx context.Context, in StaticBudgetsInput) (StaticBudgetsResult, error) {
	r, err := k.Budgets.ApplyStaticBudgets(ctx, in)
	if err != nil {
		return StaticBudgetsResult{}, Unavailable("update the static PodDisruptionBudgets", err)
	}
	return r, nil
}

// RelocateInput is what becomes of the data on nodes that are leaving. On all others nothing of ours is left.
type RelocateInput struct {
	Cluster storage.ClusterKey   `json:"cluster"`
	Policy  PolicyVersion        `json:"policy,omitzero"` // as in BudgetInput
	Nodes   []storage.Relocation `json:"nodes,omitempty"`
}

// RelocateResult says what became of it.
type RelocateResult struct {
	Changed bool `json:"changed,omitempty"`
	// Refused is why the storage cluster was not told so; "": it was.
	Refused string `json:"refused,omitempty"`
}

// relocate has data moved.
func (k *Keeper) takeBack(ctx context.Context, in CarryInput) (struct{}, error) {
	if err := k.Budgets.TakeBackOverrides(ctx, in.Cluster, in.TakeBack); err != nil {
		return struct{}{}, Unavailable("take back that pods may go out of turn", err)
	}
	return struct{}{}, nil
}

func (k *Keeper) relocate(ctx context.Context, in RelocateInput) (RelocateResult, error) {
	r, err := k.Budgets.Relocate(ctx, in)
	if err != nil {
		return RelocateResult{}, Unavailable("have the storage cluster move data away from nodes that are leaving", err)
	}
	return r, nil
}
