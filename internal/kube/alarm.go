package kube

import (
	"context"
	"encoding/json"
	"errors"
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
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) { // not ours, if both were refused
		return nil
	}
	return err
}

// clipped bounds what is written on every budget.
func clipped(why string) string {
	const most = 200
	if r := []rune(why); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return why
}
