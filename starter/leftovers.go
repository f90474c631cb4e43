package starter

import (
	"context"

	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// A policy takes its budgets with it. But a request to make one may arrive after its keeper has ended, and whoever
// takes the policy's finalizer away leaves them all; and what they cover could not be evicted any more. So a keeper is
// started for the policy that is gone, which finds that out and takes away whatever is there.

// Leftovers lists the policies that are gone and have budgets of ours all the same.
func Leftovers(
	policies []v1alpha1.MaintenancePolicy, budgets []policyv1.PodDisruptionBudget,
) map[storage.ClusterKey]bool {
	out := map[storage.ClusterKey]bool{}
	for i := range budgets {
		b := &budgets[i]
		if policy := b.Labels[kube.LabelPolicy]; b.Labels[kube.LabelManagedBy] == kube.FieldOwner && policy != "" {
			out[storage.ClusterKey{Namespace: b.Namespace, Name: policy}] = true
		}
	}
	for i := range policies {
		delete(out, storage.ClusterKey{Namespace: policies[i].Namespace, Name: policies[i].Name})
	}
	return out
}

// sweep starts keepers for policies that are gone and whose budgets were there a round ago, too: until then their last
// keeper may be about to take them away. What cannot be taken away is tried again after 2, 4, 8 rounds, and so on.
func (r *Reconciler) sweep(ctx context.Context) {
	var (
		policies v1alpha1.MaintenancePolicyList
		budgets  policyv1.PodDisruptionBudgetList
	)
	if err := r.Objects.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		r.Log.Error(err, "cannot list the policies in the cache")
		return
	}
	if err := r.Objects.List(ctx, &budgets, client.UnsafeDisableDeepCopy); err != nil {
		r.Log.Error(err, "cannot list the budgets in the cache")
		return
	}
	rounds := map[storage.ClusterKey]int{}
	for key := range Leftovers(policies.Items, budgets.Items) {
		n := r.leftFor[key]
		if rounds[key] = n + 1; n == 0 || n&(n-1) != 0 {
			continue
		}
		r.Log.Info("a policy that is gone left budgets: its keeper is to take them away", "policy", key.String())
		if err := r.Temporal.SignalKeeper(ctx, key,
			workflows.Hint{Reason: "budgets are there whose policy is gone"}); err != nil && ctx.Err() == nil {
			r.Log.Error(err, "cannot start the keeper, trying again in a minute", "policy", key.String())
			rounds[key] = n
		}
	}
	r.leftFor = rounds
}
