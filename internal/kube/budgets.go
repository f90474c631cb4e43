package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Labels by which our budgets are recognised. What carries them is ours to change and to delete; nothing else is.
const (
	LabelManagedBy = "app.kubernetes.io/managed-by"
	LabelPolicy    = "lockkeeper.io/policy"
	LabelDaemon    = "lockkeeper.io/daemon"
)

// DaemonBudgetName is the name of the one budget over a policy's storage daemons.
func DaemonBudgetName(policy string) string { return "lockkeeper-" + policy + "-osd" }

// ApplyBudgets implements activities.Budgets: one list, and one write for each budget that differs. A write is a create or
// a whole update of one object, so that there is no instant between the old and the new state.
func (c *Cluster) ApplyBudgets(ctx context.Context, key storage.ClusterKey, specs budget.Specs) (activities.BudgetResult, error) {
	p, err := c.MaintenancePolicy(ctx, key)
	if err != nil {
		return activities.BudgetResult{}, err
	}
	list, err := c.typed.PolicyV1().PodDisruptionBudgets(key.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return activities.BudgetResult{}, err
	}
	osds := newBudget(p, DaemonBudgetName(p.Name), "osd", except(OSDSelector(p), specs.Daemons), specs.Daemons.MinAvailable)
	out, err := c.applyBudget(ctx, list.Items, osds, OSDSelector(p))
	if err != nil {
		return out, err
	}
	if specs.Mons == nil {
		return out, c.removeBudget(ctx, list.Items, MonBudgetName(p.Name))
	}
	mons := newBudget(p, MonBudgetName(p.Name), "mon", except(MonSelector(p), *specs.Mons), specs.Mons.MinAvailable)
	r, err := c.applyBudget(ctx, list.Items, mons, MonSelector(p))
	if out.Conflict == "" {
		out.Conflict = r.Conflict
	}
	out.Changed, out.MonGeneration = out.Changed || r.Changed, r.Generation
	return out, err
}

// except is a selector that leaves out the pods whose label has one of the values.
func except(from *metav1.LabelSelector, spec budget.Spec) *metav1.LabelSelector {
	selector := from.DeepCopy()
	if len(spec.Except) > 0 {
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: spec.Key, Operator: metav1.LabelSelectorOpNotIn, Values: slices.Sorted(slices.Values(spec.Except)),
		})
	}
	return selector
}

// removeBudget deletes a budget of ours, if it is there.
func (c *Cluster) removeBudget(ctx context.Context, existing []policyv1.PodDisruptionBudget, name string) error {
	for i := range existing {
		b := &existing[i]
		if b.Name != name || !ours(b) {
			continue
		}
		if err := c.typed.PolicyV1().PodDisruptionBudgets(b.Namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func newBudget(p *v1alpha1.MaintenancePolicy, name, daemon string, selector *metav1.LabelSelector, minAvailable int) *policyv1.PodDisruptionBudget {
	least := intstr.FromInt32(int32(minAvailable)) //nolint:gosec // a number of pods
	// IfHealthyBudget: an unready pod may go only while the budget is met. AlwaysAllow would also let go of unready pods whose daemon still serves.
	unhealthy := policyv1.IfHealthyBudget
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: name,
			Labels:          map[string]string{LabelManagedBy: FieldOwner, LabelPolicy: p.Name, LabelDaemon: daemon},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p, v1alpha1.GroupVersion.WithKind("MaintenancePolicy"))},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &least, Selector: selector, UnhealthyPodEvictionPolicy: &unhealthy},
	}
}

// applyBudget creates or updates one budget of ours. existing is every budget of the namespace; a foreign one that
// covers the same pods would make each of their evictions fail with a 500, so then nothing is created.
func (c *Cluster) applyBudget(ctx context.Context, existing []policyv1.PodDisruptionBudget, want *policyv1.PodDisruptionBudget, covers *metav1.LabelSelector) (activities.BudgetResult, error) {
	var have *policyv1.PodDisruptionBudget
	for i := range existing {
		if existing[i].Name == want.Name {
			have = &existing[i]
		}
	}
	conflict, err := c.conflict(ctx, existing, want, covers)
	if err != nil {
		return activities.BudgetResult{}, err
	}
	budgets := c.typed.PolicyV1().PodDisruptionBudgets(want.Namespace)
	switch {
	case have == nil && conflict != "":
		return activities.BudgetResult{Conflict: conflict}, nil
	case have == nil:
		made, err := budgets.Create(ctx, want, metav1.CreateOptions{FieldManager: FieldOwner})
		if err != nil {
			return activities.BudgetResult{}, err
		}
		return activities.BudgetResult{Changed: true, Generation: made.Generation}, nil
	case !ours(have):
		return activities.BudgetResult{Conflict: fmt.Sprintf("PodDisruptionBudget %s/%s exists and is not lockkeeper's: rename or delete it", have.Namespace, have.Name)}, nil
	case equality.Semantic.DeepEqual(have.Spec, want.Spec):
		return activities.BudgetResult{Conflict: conflict, Generation: have.Generation}, nil
	}
	patch, err := replaceSpec(have, want)
	if err != nil {
		return activities.BudgetResult{}, err
	}
	made, err := budgets.Patch(ctx, have.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: FieldOwner})
	if err != nil {
		return activities.BudgetResult{}, err
	}
	return activities.BudgetResult{Changed: true, Conflict: conflict, Generation: made.Generation}, nil
}

// replaceSpec is a patch that replaces the whole spec of one budget. Not an update: that one fails when the disruption
// controller writes the status in between, and it does so just when pods come and go, which is when we are in a hurry.
func replaceSpec(have, want *policyv1.PodDisruptionBudget) ([]byte, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	return json.Marshal([]operation{
		{"test", "/metadata/uid", have.UID},
		{"replace", "/spec", want.Spec},
	})
}

func ours(b *policyv1.PodDisruptionBudget) bool { return b.Labels[LabelManagedBy] == FieldOwner }

// conflict names a foreign budget that covers pods which ours covers, too: somebody else's, or that of another policy, whose
// keeper takes it away when it notices that this one was first. Pods are looked at only when a foreign budget exists at all.
func (c *Cluster) conflict(ctx context.Context, existing []policyv1.PodDisruptionBudget, want *policyv1.PodDisruptionBudget, covers *metav1.LabelSelector) (string, error) {
	namespace := want.Namespace
	var foreign []*policyv1.PodDisruptionBudget
	for i := range existing {
		if !ours(&existing[i]) || existing[i].Labels[LabelPolicy] != want.Labels[LabelPolicy] {
			foreign = append(foreign, &existing[i])
		}
	}
	if len(foreign) == 0 {
		return "", nil
	}
	selector, err := metav1.LabelSelectorAsSelector(covers)
	if err != nil {
		return "", err
	}
	pods, err := c.typed.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return "", err
	}
	for _, b := range foreign {
		theirs, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			continue
		}
		for i := range pods.Items {
			switch matches := theirs.Matches(labels.Set(pods.Items[i].Labels)); {
			case matches && ours(b):
				return fmt.Sprintf("PodDisruptionBudget %s/%s of MaintenancePolicy %s also covers pod %s: under two budgets no eviction succeeds; delete one of the two policies",
					b.Namespace, b.Name, b.Labels[LabelPolicy], pods.Items[i].Name), nil
			case matches:
				return fmt.Sprintf("PodDisruptionBudget %s/%s, which is not lockkeeper's, also covers pod %s: under two budgets no eviction succeeds; "+
					"delete it, and in Rook set spec.disruptionManagement.managePodBudgets to false", b.Namespace, b.Name, pods.Items[i].Name), nil
			}
		}
	}
	return "", nil
}

// RemoveBudgets implements activities.Budgets.
func (c *Cluster) RemoveBudgets(ctx context.Context, key storage.ClusterKey) error {
	mine := labels.SelectorFromSet(labels.Set{LabelManagedBy: FieldOwner, LabelPolicy: key.Name}).String()
	budgets := c.typed.PolicyV1().PodDisruptionBudgets(key.Namespace)
	list, err := budgets.List(ctx, metav1.ListOptions{LabelSelector: mine})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if err := budgets.Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
