package kube

import (
	"context"
	"fmt"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/precedence"
)

// This file is about budgets that pass from one policy to another of the same namespace, which turns out to mean the
// same storage cluster. Whoever stands aside leaves its budgets, closed, and gives up its claim; then the keeper in
// charge makes its own, one after the other, and deletes the one that each replaces. For the moment between those two
// requests a pod is under both, so its eviction is refused; it is never under none.

// standingAside tells of a budget whether the policy in charge, which want is of, may put its own in its place: its
// policy has given up its claim to the storage cluster that the policy in charge has claimed. The policies are read
// once, when they are first asked for.
func (c *Cluster) standingAside(
	want *policyv1.PodDisruptionBudget,
) func(context.Context, *policyv1.PodDisruptionBudget) (bool, error) {
	var list *v1alpha1.MaintenancePolicyList
	claim := func(name string) precedence.Claim {
		for i := range list.Items {
			if p := &list.Items[i]; p.Namespace == want.Namespace && p.Name == name {
				return claimOf(&p.Status)
			}
		}
		return precedence.Claim{}
	}
	return func(ctx context.Context, b *policyv1.PodDisruptionBudget) (bool, error) {
		if !ours(b) || c.api == nil {
			return false, nil
		}
		if list == nil {
			var all v1alpha1.MaintenancePolicyList
			if err := c.api.List(ctx, &all); err != nil {
				return false, err
			}
			list = &all
		}
		mine := claim(want.Labels[LabelPolicy])
		return mine.Held && mine.ID != "" && claim(b.Labels[LabelPolicy]) == precedence.Claim{ID: mine.ID}, nil
	}
}

// replaced deletes the budget of a policy standing aside whose place want has taken.
func (c *Cluster) replaced(
	ctx context.Context, left []*policyv1.PodDisruptionBudget, want *policyv1.PodDisruptionBudget,
) error {
	part := func(b *policyv1.PodDisruptionBudget) string {
		return strings.TrimPrefix(b.Name, budgetPrefix(b.Labels[LabelPolicy]))
	}
	for _, b := range left {
		if part(b) != part(want) {
			continue
		}
		err := c.typed.PolicyV1().PodDisruptionBudgets(b.Namespace).Delete(ctx, b.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &b.UID},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete PodDisruptionBudget %s/%s, which %s replaces: %w", b.Namespace, b.Name, want.Name, err)
		}
	}
	return nil
}
