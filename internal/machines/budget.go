package machines

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// This file writes the MachineDisruptionBudget of a policy: one per storage cluster, in the namespace of the Machines.

// ForPolicy is the annotation that tells whose a MachineDisruptionBudget is: "namespace/name" of the policy.
const ForPolicy = "lockkeeper.io/policy"

// budgetKinds are the groups that the MachineDisruptionBudget has had.
var budgetKinds = []schema.GroupKind{
	{Group: "healthchecking.openshift.io", Kind: "MachineDisruptionBudget"},
	{Group: openShiftGroup, Kind: "MachineDisruptionBudget"},
}

func (h *Holder) budgetKind() (schema.GroupVersionKind, error) {
	var last error
	for _, k := range budgetKinds {
		served, err := h.served(k, []string{"v1alpha1"})
		if err == nil {
			return served, nil
		}
		last = err
	}
	return schema.GroupVersionKind{}, last
}

// moreThanThereAre is a minAvailable that no number of healthy Machines reaches.
const moreThanThereAre = math.MaxInt32

// Budget tells what the MachineDisruptionBudget says, and whether it is to let nobody go.
func (h *Holder) Budget(ctx context.Context) (fencing.MachineBudget, error) {
	k, err := h.budgetKind()
	if err != nil {
		return fencing.MachineBudget{}, err
	}
	b := fencing.MachineBudget{Never: h.letsNobodyGo(ctx)}
	o, err := h.budget(ctx, k)
	if apierrors.IsNotFound(err) {
		return b, nil
	}
	if err != nil {
		return b, err
	}
	says := -1 // something else: it is written anew
	most, limited, _ := unstructured.NestedInt64(o.Object, "spec", "maxUnavailable")
	least, atLeast, _ := unstructured.NestedInt64(o.Object, "spec", "minAvailable")
	switch {
	case b.Never && !limited && least == moreThanThereAre:
		says = 0
	case !b.Never && limited && !atLeast:
		says = int(most)
	}
	b.Max = &says
	return b, nil
}

// fencesTheReady tells whether a health check may want a node fenced that is ready. One that cannot be read may.
func (h *Holder) fencesTheReady(ctx context.Context) bool {
	checks, err := h.HealthChecks(ctx)
	if err != nil {
		return !errors.Is(err, ErrNotServed)
	}
	return slices.ContainsFunc(checks, func(c HealthCheck) bool {
		return slices.ContainsFunc(c.Checks, func(c fencing.Check) bool { return c.Type != string(corev1.NodeReady) })
	})
}

// letsNobodyGo tells whether Machines go as they are released only, since a number does not say which one may: one
// whose node is ready, or with which disks go that are tied to it. What cannot be read may be so.
func (h *Holder) letsNobodyGo(ctx context.Context) bool {
	return h.fencesTheReady(ctx) || h.takesPinnedDisks(ctx)
}

// takesPinnedDisks tells whether whoever fences a Machine takes away the disk of an OSD that can run nowhere else.
func (h *Holder) takesPinnedDisks(ctx context.Context) bool {
	if h.pinned == nil {
		return false
	}
	k, err := h.served(h.kind.machine, h.kind.versions)
	if err != nil {
		return !errors.Is(err, ErrNotServed)
	}
	all, err := h.list(ctx, k)
	if err != nil {
		return true
	}
	all = slices.DeleteFunc(all, func(m unstructured.Unstructured) bool { return !h.takesDisks(&m) })
	if len(all) == 0 {
		return false
	}
	pinned, err := h.pinned(ctx)
	return err != nil || slices.ContainsFunc(all, func(m unstructured.Unstructured) bool {
		return pinned[h.describe(&m).Node]
	})
}

// SetBudget makes the MachineDisruptionBudget say how many of the held Machines may be unavailable. Nothing is written
// when it says so already. One of the same name that somebody else made is an error. Where Machines go as they are
// released only it lets nobody go, whatever was decided before that was seen.
func (h *Holder) SetBudget(ctx context.Context, maxUnavailable int) error {
	k, err := h.budgetKind()
	if err != nil {
		return err
	}
	want := map[string]any{
		"selector": map[string]any{"matchLabels": map[string]any{FenceGroup(h.policy): h.policy.Namespace}},
	}
	if h.letsNobodyGo(ctx) {
		want["minAvailable"] = int64(moreThanThereAre)
	} else {
		want["maxUnavailable"] = int64(maxUnavailable)
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		o, err := h.budget(ctx, k)
		switch {
		case apierrors.IsNotFound(err):
			o = &unstructured.Unstructured{Object: map[string]any{"spec": want}}
			o.SetGroupVersionKind(k)
			o.SetNamespace(h.namespace)
			o.SetName(h.policy.Name)
			o.SetAnnotations(map[string]string{ForPolicy: h.policy.String()})
			return h.client.Create(ctx, o, client.FieldOwner(kube.FieldOwner))
		case err != nil:
			return err
		}
		before := o.DeepCopy()
		o.Object["spec"] = want
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if data, err := patch.Data(o); err != nil || isEmpty(data) {
			return err
		}
		return h.client.Patch(ctx, o, patch, client.FieldOwner(kube.FieldOwner))
	})
}

// RemoveBudget deletes it, if it is ours.
func (h *Holder) RemoveBudget(ctx context.Context) error {
	k, err := h.budgetKind()
	if err != nil {
		return err
	}
	o, err := h.budget(ctx, k)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	uid := o.GetUID()
	return client.IgnoreNotFound(h.client.Delete(ctx, o, client.Preconditions(metav1.Preconditions{UID: &uid})))
}

func (h *Holder) budget(ctx context.Context, k schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(k)
	if err := h.client.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: h.policy.Name}, o); err != nil {
		return nil, err
	}
	if owner := o.GetAnnotations()[ForPolicy]; owner != h.policy.String() {
		return nil, fmt.Errorf("MachineDisruptionBudget %s/%s is not ours (annotation %s %q, ours is %q): delete it, or "+
			"give the policy another name", h.namespace, o.GetName(), ForPolicy, owner, h.policy)
	}
	return o, nil
}

// budgetsOfOthers are the MachineDisruptionBudgets of somebody else: fencing asks one budget of a Machine only, and it
// may be theirs.
func (h *Holder) budgetsOfOthers(ctx context.Context) (others []HealthCheck, err error) {
	k, err := h.budgetKind()
	if err != nil {
		return nil, err
	}
	items, err := h.list(ctx, k)
	if err != nil {
		return nil, err
	}
	for i := range items {
		if items[i].GetAnnotations()[ForPolicy] == h.policy.String() {
			continue
		}
		c, err := readCheck(&items[i]) // the selector is where a health check has it
		if err != nil {
			return nil, fmt.Errorf("MachineDisruptionBudget %s: %w", items[i].GetName(), err)
		}
		others = append(others, c)
	}
	return others, nil
}
