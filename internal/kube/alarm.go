package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// WatcherOwner names the watcher in managed fields: it may close our budgets, and nothing else.
const WatcherOwner = "lockkeeper-watcher"

// RaiseAlarm implements activities.Budgets.
func (c *Cluster) RaiseAlarm(ctx context.Context, key storage.ClusterKey, why string) error {
	p, err := c.MaintenancePolicy(ctx, key)
	if errors.Is(err, activities.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.Close(ctx, p, FieldOwner, time.Now(), why)
}

// alarmTime sorts as it is written.
const alarmTime = "2006-01-02T15:04:05.000000000Z"

// headStart is how long closing the mons' budget waits for that of the others at the most.
const headStart = 100 * time.Millisecond

// Close closes our budgets of a policy's storage daemons and mons, and writes the alarm on each. All that it tests is
// that they are the same objects: closing is always safe, and must not fail because somebody else is writing. A budget
// that is not there is for the keeper to make. No request before the writes, and those of the storage daemons at once:
// whoever closes is in a hurry, and on a busy API server a third write delays the other two. So the mons' gives them a
// head start.
func (c *Cluster) Close(
	ctx context.Context, p *v1alpha1.MaintenancePolicy, owner string, at time.Time, why string,
) error {
	alarm := at.UTC().Format(alarmTime) + " " + clipped(why)
	closed := budget.Spec{MinAvailable: budget.Everything}
	write := func(b *policyv1.PodDisruptionBudget) error { return c.closeBudget(ctx, b, owner, alarm) }
	var provedErr, othersErr error
	var daemons sync.WaitGroup
	daemons.Go(func() { provedErr = write(markedBudget(p).of(p, closed)) })
	daemons.Go(func() { othersErr = write(unmarkedBudget(p).of(p, closed)) })
	written := make(chan struct{})
	go func() { daemons.Wait(); close(written) }()
	select {
	case <-written:
	case <-time.After(headStart):
	}
	var monsErr error
	if KindOf(p) == storage.Ceph {
		monsErr = write(newBudget(p, MonBudgetName(p.Name), DaemonMon, MonSelector(p), closed))
	}
	<-written
	return errors.Join(provedErr, othersErr, monsErr)
}

// closeBudget leaves a budget alone that does not carry our labels.
func (c *Cluster) closeBudget(ctx context.Context, want *policyv1.PodDisruptionBudget, owner, alarm string) error {
	ours := []operation{
		{"test", "/metadata/labels/" + escaped(LabelManagedBy), FieldOwner},
		{"test", "/metadata/labels/" + escaped(LabelPolicy), want.Labels[LabelPolicy]},
	}
	var err error
	for _, annotate := range []operation{
		{"add", alarmPath, alarm},
		// of a budget without any, which the first one refuses
		{"add", "/metadata/annotations", map[string]string{AlarmAnnotation: alarm}},
	} {
		var patch []byte
		if patch, err = json.Marshal(
			append(slices.Clone(ours), annotate, operation{"replace", "/spec", want.Spec})); err != nil {
			return err
		}
		_, err = c.typed.PolicyV1().PodDisruptionBudgets(want.Namespace).Patch(ctx, want.Name, types.JSONPatchType, patch,
			metav1.PatchOptions{FieldManager: owner})
		if !apierrors.IsInvalid(err) {
			break
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsInvalid(err): // a test that fails is called so, and so is what an admission policy denies
		return c.closeAsItIs(ctx, want, owner, alarm)
	default:
		return err
	}
}

// closeAsItIs closes a budget of ours whose selector may not become the one that is wanted. The policy has changed, or
// an older version wrote the budget, and admission.yaml keeps the watcher from taking a pod out. So it covers what it
// covered, and whatever it left out for a failure domain. What is not ours is left alone.
func (c *Cluster) closeAsItIs(ctx context.Context, want *policyv1.PodDisruptionBudget, owner, alarm string) error {
	budgets := c.typed.PolicyV1().PodDisruptionBudgets(want.Namespace)
	list, err := budgets.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + want.Name})
	if err != nil {
		return err
	}
	for i := range list.Items {
		have := &list.Items[i]
		if !ours(have) || have.Labels[LabelPolicy] != want.Labels[LabelPolicy] {
			continue
		}
		annotate := operation{"add", alarmPath, alarm}
		if have.Annotations == nil {
			annotate = operation{"add", "/metadata/annotations", map[string]string{AlarmAnnotation: alarm}}
		}
		closed := want.Spec.DeepCopy()
		closed.Selector = widened(have.Spec.Selector, want.Spec.Selector)
		patch, err := json.Marshal([]operation{
			{"test", "/metadata/resourceVersion", have.ResourceVersion}, annotate, {"replace", "/spec", closed},
		})
		if err != nil {
			return err
		}
		if _, err := budgets.Patch(ctx, have.Name, types.JSONPatchType, patch,
			metav1.PatchOptions{FieldManager: owner}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("close PodDisruptionBudget %s: %w", have.Name, err)
		}
	}
	return nil
}

// widened is a budget's selector without what it leaves out, but for what another one leaves out, too.
func widened(have, other *metav1.LabelSelector) *metav1.LabelSelector {
	if have == nil {
		return other
	}
	out := have.DeepCopy()
	out.MatchExpressions = slices.DeleteFunc(out.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
		return r.Operator == metav1.LabelSelectorOpNotIn &&
			!slices.ContainsFunc(other.MatchExpressions, func(o metav1.LabelSelectorRequirement) bool {
				return reflect.DeepEqual(o, r)
			})
	})
	return out
}

// clipped bounds what is written on every budget.
func clipped(why string) string {
	const most = 200
	if r := []rune(why); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return why
}
