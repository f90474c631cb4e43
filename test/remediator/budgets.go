package remediator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// This file is what the machine API did with MachineDisruptionBudgets: one controller counts, and the health check asks
// before it fences.

const (
	machineAPI = "machine.openshift.io/v1beta1"
	budgetAPI  = "healthchecking.openshift.io/v1alpha1"
)

func (r *Remediator) lookAtBudgets(ctx context.Context) error {
	machines, err := r.list(ctx, machineAPI, "Machine")
	if err != nil {
		return err
	}
	checks, err := r.list(ctx, machineAPI, "MachineHealthCheck")
	if err != nil {
		return err
	}
	budgets, err := r.list(ctx, budgetAPI, "MachineDisruptionBudget")
	if err != nil {
		return err
	}
	nodes, err := r.nodes(ctx)
	if err != nil {
		return err
	}
	failed := r.deleteMachines(ctx, machines)
	for i := range budgets {
		failed = errors.Join(failed, r.count(ctx, &budgets[i], machines, nodes))
	}
	for i := range checks {
		all, err := conditions(&checks[i], "timeout")
		if err != nil {
			return err
		}
		targets, err := selected(&checks[i], machines)
		if err != nil {
			return err
		}
		for _, m := range targets {
			bad := nodeOf(m) != "" && unhealthy(nodes[nodeOf(m)], all, time.Now())
			if !bad {
				delete(r.starting, nodeOf(m))
			}
			if !bad || r.starting[nodeOf(m)] || m.GetDeletionTimestamp() != nil {
				continue
			}
			may, err := r.budgetAllows(budgets, m)
			if err == nil && may {
				err = r.remediate(ctx, m)
			}
			if failed = errors.Join(failed, err); may {
				return failed // what is unhealthy now counts from the next look on
			}
		}
	}
	return failed
}

// count writes what a budget's status says. A Machine is healthy when its node is ready.
func (r *Remediator) count(
	ctx context.Context, budget *unstructured.Unstructured, machines []unstructured.Unstructured,
	nodes map[string]*corev1.Node,
) error {
	of, err := selected(budget, machines)
	if err != nil {
		return err
	}
	current := 0
	for _, m := range of {
		if m.GetDeletionTimestamp() == nil && ready(nodes[nodeOf(m)]) {
			current++
		}
	}
	desired, found, err := unstructured.NestedInt64(budget.Object, "spec", "minAvailable")
	if most, limited, e := unstructured.NestedInt64(budget.Object, "spec", "maxUnavailable"); limited && e == nil {
		desired, found = max(0, int64(len(of))-most), true
	}
	if err != nil || !found {
		return fmt.Errorf("MachineDisruptionBudget %s: minAvailable or maxUnavailable is missing: %w", budget.GetName(), err)
	}
	status := map[string]any{
		"expectedMachines": int64(len(of)), "currentHealthy": int64(current), "desiredHealthy": desired,
		"disruptionsAllowed": max(0, int64(current)-desired),
	}
	before := budget.DeepCopy()
	budget.Object["status"] = status
	if equality.Semantic.DeepEqual(before.Object["status"], budget.Object["status"]) {
		return nil
	}
	return r.Client.Patch(ctx, budget, client.MergeFrom(before))
}

// budgetAllows tells whether a Machine may be fenced: no budget selects it, or the one that does allows a disruption.
func (r *Remediator) budgetAllows(budgets []unstructured.Unstructured, m *unstructured.Unstructured) (bool, error) {
	var by []*unstructured.Unstructured
	for i := range budgets {
		of, err := selected(&budgets[i], []unstructured.Unstructured{*m})
		if err != nil {
			return false, err
		}
		if len(of) > 0 {
			by = append(by, &budgets[i])
		}
	}
	switch len(by) {
	case 0:
		return true, nil
	case 1:
		return allows(by[0], r.FirstWaits.Load()), nil
	}
	return false, fmt.Errorf("%d MachineDisruptionBudgets select Machine %s", len(by), m.GetName())
}

func allows(budget *unstructured.Unstructured, firstWaits bool) bool {
	current, _, _ := unstructured.NestedInt64(budget.Object, "status", "currentHealthy")
	desired, _, _ := unstructured.NestedInt64(budget.Object, "status", "desiredHealthy")
	if firstWaits {
		return current > desired
	}
	return current >= desired
}

// remediate starts a machine of metal again, and deletes any other.
func (r *Remediator) remediate(ctx context.Context, m *unstructured.Unstructured) error {
	if id, _, _ := unstructured.NestedString(m.Object, "spec", "providerID"); strings.HasPrefix(id, "baremetalhost://") {
		return r.startAgain(ctx, nodeOf(m))
	}
	return client.IgnoreNotFound(r.Client.Delete(ctx, m))
}

// startAgain has a node started again, once until it is healthy.
func (r *Remediator) startAgain(ctx context.Context, node string) error {
	if r.starting[node] {
		return nil
	}
	if r.starting == nil {
		r.starting = map[string]bool{}
	}
	r.starting[node] = true
	return r.fence(ctx, node, false)
}
