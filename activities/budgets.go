package activities

import (
	"context"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

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
}

// GuardPods makes the budgets of the storage daemons and the mons say what was decided, each by a single update.
func (k *Keeper) GuardPods(ctx context.Context, in BudgetInput) (BudgetResult, error) {
	r, err := k.Budgets.ApplyBudgets(ctx, in)
	if err != nil {
		return BudgetResult{}, Unavailable("update the PodDisruptionBudgets", err)
	}
	return r, nil
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

// GuardOthers makes the budgets of the other daemons follow their replicas.
func (k *Keeper) GuardOthers(ctx context.Context, in StaticBudgetsInput) (BudgetResult, error) {
	r, err := k.Budgets.ApplyStaticBudgets(ctx, in)
	if err != nil {
		return BudgetResult{}, Unavailable("update the static PodDisruptionBudgets", err)
	}
	return r, nil
}
