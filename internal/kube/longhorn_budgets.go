package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
)

// This file is the hand-over of the budgets over Longhorn's instance managers, and the way back. Longhorn makes one for
// each and cannot be told not to. While the admission policy of deploy/longhorn is installed the API server empties
// them at birth, and ours decide; or we do when we see them, if our policy says so. Otherwise Longhorn's decide, and
// ours are none. Whoever installs the policy hands over, and whoever deletes it takes back; each step is found by what
// is there, so that it may be interrupted anywhere.

// OneWriter is the name of the admission policy by which Longhorn's budgets are empty. Its bindings are called so, with
// the namespace behind it.
const OneWriter = "lockkeeper-longhorn-one-writer"

// SelectsNothing tells whether a budget selects no pod, as those of Longhorn do that the API server emptied.
func SelectsNothing(b *policyv1.PodDisruptionBudget) bool {
	if b.Spec.Selector == nil {
		return true
	}
	exists := map[string]bool{}
	for _, r := range b.Spec.Selector.MatchExpressions {
		if r.Operator == metav1.LabelSelectorOpExists {
			exists[r.Key] = true
		}
	}
	for _, r := range b.Spec.Selector.MatchExpressions {
		if r.Operator == metav1.LabelSelectorOpDoesNotExist && exists[r.Key] {
			return true
		}
	}
	return false
}

// longhorns tells whether a budget is one that Longhorn made for an instance manager.
func longhorns(b *policyv1.PodDisruptionBudget) bool {
	return strings.HasPrefix(b.Name, InstanceManager+"-") && b.Spec.Selector != nil &&
		b.Spec.Selector.MatchLabels[LonghornComponent] == InstanceManager
}

// ofLonghorn tells whether budgets of ours are over instance managers.
func ofLonghorn(mine []policyv1.PodDisruptionBudget) bool {
	return slices.ContainsFunc(mine, func(b policyv1.PodDisruptionBudget) bool {
		return b.Labels[LabelDaemon] == DaemonManager || b.Labels[LabelDaemon] == DaemonManagerProved
	})
}

// oneWriter tells whether the API server empties Longhorn's budgets of a namespace. Where it knows no such policies, or
// nobody may read them, it does not.
func (c *Cluster) oneWriter(ctx context.Context, namespace string) (bool, error) {
	var is [2]bool
	together, ctx := errgroup.WithContext(ctx)
	for i, o := range []struct{ kind, name string }{
		{"MutatingAdmissionPolicy", OneWriter}, {"MutatingAdmissionPolicyBinding", OneWriter + "-" + namespace},
	} {
		together.Go(func() (err error) {
			is[i], err = c.admits(ctx, o.kind, o.name)
			return err
		})
	}
	err := together.Wait()
	return is[0] && is[1] && err == nil, err
}

// admits tells whether an object of an admission policy is there.
func (c *Cluster) admits(ctx context.Context, kind, name string) (bool, error) {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind})
	err := c.api.Get(ctx, client.ObjectKey{Name: name}, o)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%s %s: %w", kind, name, err)
	}
	return o.DeletionTimestamp == nil, nil
}

// applyLonghorn writes the budgets over instance managers while Longhorn's own are emptied. Ours are there before one
// of Longhorn's goes that is not empty: under two budgets a pod is refused, under none it would go.
func (c *Cluster) applyLonghorn(
	ctx context.Context, p *v1alpha1.MaintenancePolicy, in activities.BudgetInput,
) (out activities.BudgetResult, err error) {
	var (
		is   bool
		list *policyv1.PodDisruptionBudgetList
	)
	together, both := errgroup.WithContext(ctx)
	together.Go(func() (err error) {
		is, err = c.oneWriter(both, p.Namespace)
		return err
	})
	together.Go(func() (err error) {
		list, err = c.typed.PolicyV1().PodDisruptionBudgets(p.Namespace).List(both, metav1.ListOptions{})
		return err
	})
	if err := together.Wait(); err != nil {
		return out, err
	}
	all := list.Items
	if !is && !emptiedByWorker(p) {
		return c.leaveToLonghorn(ctx, p, all, in)
	}
	if out, err = c.applyAll(ctx, p, withoutLonghorns(all), in); err != nil || out.Moved != "" || out.Conflict != "" {
		return out, err
	}
	if err := c.forgetHandedBack(ctx, all); err != nil {
		return out, err
	}
	full := func(b *policyv1.PodDisruptionBudget) bool { return longhorns(b) && !SelectsNothing(b) }
	if !is {
		return out, c.empty(ctx, all, full)
	}
	return out, c.drop(ctx, all, full) // it makes them anew, and the API server empties them
}

// emptiedByWorker tells whether a policy has us empty Longhorn's budgets. One that is being deleted does not: they are
// to come back.
func emptiedByWorker(p *v1alpha1.MaintenancePolicy) bool {
	return p.Spec.Longhorn != nil && p.Spec.Longhorn.BudgetsEmptiedBy == v1alpha1.EmptiedByWorker &&
		p.DeletionTimestamp == nil
}

// emptiedBy is the annotation of a budget of Longhorn's that says why it is empty.
const emptiedBy = "lockkeeper.io/emptied"

// empty makes of budgets of Longhorn's what the admission policy would have made of them at birth: they select no pod,
// and ask for none. Longhorn, which finds them by their labels, leaves them as they are. One that has changed since it
// was read is read again: that it is full for a moment longer is no reason to close ours.
func (c *Cluster) empty(ctx context.Context, all []policyv1.PodDisruptionBudget, which chosen) error {
	return each(all, which, func(b *policyv1.PodDisruptionBudget) error {
		budgets := c.typed.PolicyV1().PodDisruptionBudgets(b.Namespace)
		err := retry.OnError(retry.DefaultRetry, apierrors.IsInvalid, func() error {
			if !which(b) {
				return nil
			}
			patch, err := json.Marshal(emptying(b))
			if err != nil {
				return err
			}
			_, err = budgets.Patch(ctx, b.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: FieldOwner})
			if !apierrors.IsInvalid(err) {
				return err
			}
			now, notRead := budgets.List(ctx, metav1.ListOptions{})
			if notRead != nil {
				return notRead
			}
			i := slices.IndexFunc(now.Items, func(n policyv1.PodDisruptionBudget) bool { return n.Name == b.Name })
			if i < 0 {
				return nil
			}
			b = &now.Items[i]
			return err
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("empty budget %s of Longhorn: %w", b.Name, err)
		}
		return nil
	})
}

// chosen tells which budgets are meant.
type chosen func(*policyv1.PodDisruptionBudget) bool

func each(all []policyv1.PodDisruptionBudget, which chosen, do func(*policyv1.PodDisruptionBudget) error) error {
	for i := range all {
		if !which(&all[i]) {
			continue
		}
		if err := do(&all[i]); err != nil {
			return err
		}
	}
	return nil
}

// emptying is the change that empties a budget, if it still says what was read.
func emptying(b *policyv1.PodDisruptionBudget) []operation {
	selects := append(slices.Clone(b.Spec.Selector.MatchExpressions), nothing().MatchExpressions...)
	patch := []operation{
		{"test", "/metadata/uid", b.UID},
		{"test", "/metadata/generation", b.Generation},
		{"add", "/spec/selector/matchExpressions", selects},
		{"add", "/spec/minAvailable", 0},
	}
	if b.Spec.MaxUnavailable != nil {
		patch = append(patch, operation{"remove", "/spec/maxUnavailable", nil})
	}
	if len(b.Annotations) == 0 {
		patch = append(patch, operation{"add", "/metadata/annotations", map[string]string{}})
	}
	return append(patch, annotate(emptiedBy, "lockkeeper decides which instance managers may be evicted"))
}

func withoutLonghorns(all []policyv1.PodDisruptionBudget) []policyv1.PodDisruptionBudget {
	return slices.DeleteFunc(slices.Clone(all), func(b policyv1.PodDisruptionBudget) bool { return longhorns(&b) })
}

// leaveToLonghorn has Longhorn's own budgets decide. Ours, if there are any, close and stay until it has made its own.
func (c *Cluster) leaveToLonghorn(
	ctx context.Context, p *v1alpha1.MaintenancePolicy, all []policyv1.PodDisruptionBudget, in activities.BudgetInput,
) (out activities.BudgetResult, err error) {
	unmarked, marked := BudgetNames(p)
	_, one := find(all, unmarked)
	_, other := find(all, marked)
	if one || other {
		closed := budget.Spec{MinAvailable: budget.Everything}
		in.Specs, in.Before = budget.Specs{Daemons: closed, Unproved: &closed}, nil
		if out, err = c.applyAll(ctx, p, withoutLonghorns(all), in); err == nil {
			err = c.RemoveBudgets(ctx, in.Cluster, func(int) {}, func() error { return nil })
		}
		if err != nil {
			return out, err
		}
	}
	return activities.BudgetResult{Conflict: fmt.Sprintf("Longhorn's own budgets decide: install "+
		"deploy/longhorn/one-writer.yaml for namespace %s, by which the API server empties them; before Kubernetes 1.36 "+
		"set spec.longhorn.budgetsEmptiedBy: Worker", p.Namespace)}, nil
}

// drop deletes budgets of Longhorn's, which it makes anew.
func (c *Cluster) drop(ctx context.Context, all []policyv1.PodDisruptionBudget, which chosen) error {
	return each(all, which, func(b *policyv1.PodDisruptionBudget) error {
		err := c.typed.PolicyV1().PodDisruptionBudgets(b.Namespace).Delete(ctx, b.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &b.UID}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("budget %s of Longhorn, which makes it anew: %w", b.Name, err)
		}
		return nil
	})
}

// Errors of the way back.
var (
	errStillOneWriter = errors.New("the API server still empties Longhorn's own budgets, so that nothing would protect " +
		"its volumes without these: kubectl delete -f deploy/longhorn/one-writer.yaml")
	errNotCovered = errors.New("Longhorn has not made its own budgets again yet, which takes it half a minute")
)

// handedBack is the annotation of ours that says since when Longhorn has none that is empty any more.
const handedBack = "lockkeeper.io/handed-back"

// remakesWithin is how long Longhorn takes at most to make its budgets again (measured: 4.5 to 24 s). It makes none for
// an instance manager that it lets go, so that the time has to tell.
const remakesWithin = time.Minute

// handBack is called before ours go, which are closed. It deletes Longhorn's empty budgets, and fails until every
// instance manager is under one of its own, or until it has had the time to make them.
func (c *Cluster) handBack(ctx context.Context, namespace string, all []policyv1.PodDisruptionBudget) error {
	is, err := c.oneWriter(ctx, namespace)
	if err != nil {
		return err
	}
	if is {
		return errStillOneWriter
	}
	empty := func(b *policyv1.PodDisruptionBudget) bool { return longhorns(b) && SelectsNothing(b) }
	if slices.ContainsFunc(all, func(b policyv1.PodDisruptionBudget) bool { return empty(&b) }) {
		if err := c.drop(ctx, all, empty); err != nil {
			return err
		}
		return cmp.Or(c.noteHandedBack(ctx, all), errNotCovered)
	}
	if covered, err := c.coveredByLonghorn(ctx, namespace, all); covered || err != nil {
		return err
	}
	for i := range all {
		at, err := time.Parse(time.RFC3339, all[i].Annotations[handedBack])
		if err == nil && ours(&all[i]) {
			if time.Since(at) > remakesWithin {
				return nil
			}
			return errNotCovered
		}
	}
	return cmp.Or(c.noteHandedBack(ctx, all), errNotCovered)
}

// coveredByLonghorn tells whether every instance manager is under a budget of Longhorn's.
func (c *Cluster) coveredByLonghorn(
	ctx context.Context, namespace string, all []policyv1.PodDisruptionBudget,
) (bool, error) {
	pods, err := c.typed.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: LonghornComponent + "=" + InstanceManager,
	})
	if err != nil {
		return false, err
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		under := slices.ContainsFunc(all, func(b policyv1.PodDisruptionBudget) bool {
			s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			return err == nil && longhorns(&b) && s.Matches(labels.Set(p.Labels))
		})
		if !under && !ended(p) && p.DeletionTimestamp == nil {
			return false, nil
		}
	}
	return true, nil
}

// forgetHandedBack takes back what noteHandedBack wrote: the next time Longhorn needs as long again.
func (c *Cluster) forgetHandedBack(ctx context.Context, all []policyv1.PodDisruptionBudget) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, handedBack)
	for i := range all {
		b := &all[i]
		if !ours(b) || b.Annotations[handedBack] == "" {
			continue
		}
		_, err := c.typed.PolicyV1().PodDisruptionBudgets(b.Namespace).Patch(ctx, b.Name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: FieldOwner})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// noteHandedBack writes on ours, on each, that from now on it is for Longhorn to make its own: when one of them is gone
// the other one has to tell.
func (c *Cluster) noteHandedBack(ctx context.Context, all []policyv1.PodDisruptionBudget) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, handedBack, time.Now().UTC().Format(time.RFC3339))
	for i := range all {
		b := &all[i]
		if !ours(b) {
			continue
		}
		_, err := c.typed.PolicyV1().PodDisruptionBudgets(b.Namespace).Patch(ctx, b.Name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: FieldOwner})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
