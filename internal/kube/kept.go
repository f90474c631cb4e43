package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is about whether a policy's status is kept up to date, and who says so: the keeper confirms it, the watcher
// disowns it.

// NotKept is what MayDrain says, and ReasonNotKept the reason, of a status that nobody keeps up to date.
const (
	NotKept       = "unknown: nobody keeps this up to date"
	ReasonNotKept = "NotKept"
)

// Disowned tells whether a status says of itself that nobody keeps it up to date.
func Disowned(s v1alpha1.MaintenancePolicyStatus) bool {
	return s.MayDrain == NotKept || meta.IsStatusConditionFalse(s.Conditions, v1alpha1.ConditionKept)
}

// RenewStatus implements activities.Policies. One request; the test is for what the watcher may have written since the
// report.
func (c *Cluster) RenewStatus(
	ctx context.Context, key storage.ClusterKey, r activities.Renewal,
) (differs bool, err error) {
	patch, err := json.Marshal([]operation{
		{"test", "/status/mayDrain", r.MayDrain},
		{"add", "/status/asOf", metav1.NewTime(r.AsOf)},
	})
	if err != nil {
		return false, err
	}
	p := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err = c.api.Status().Patch(ctx, p, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(FieldOwner))
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsInvalid(err):
		return true, nil
	default:
		return false, err
	}
}

// Disown writes into a policy's status that nobody has kept it up to date since some moment, and why. It changes p as
// it was read, or nothing: if anybody wrote since, the error is a conflict. What else the status says stays; it is the
// keeper's memory.
func (c *Cluster) Disown(ctx context.Context, p *v1alpha1.MaintenancePolicy, since time.Time, why string) error {
	at := metav1.NewTime(since.Truncate(time.Second))
	message := fmt.Sprintf("nobody has kept this up to date since %s: %s", at.UTC().Format(time.RFC3339), clipped(why))
	if before := p.Status.MayDrain; before != "" && before != NotKept {
		message += fmt.Sprintf("; the last word was %q, and the budgets stay as they were left or closed by an alarm", before)
	}
	conditions := append([]metav1.Condition{}, p.Status.Conditions...)
	meta.SetStatusCondition(&conditions, metav1.Condition{
		Type: v1alpha1.ConditionKept, Status: metav1.ConditionFalse, Reason: ReasonNotKept, Message: message,
		LastTransitionTime: at, ObservedGeneration: p.Generation,
	})
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": p.ResourceVersion},
		"status": map[string]any{
			"mayDrain": NotKept, "reason": ReasonNotKept, "message": message, "since": at,
			"conditions": conditions,
		},
	})
	if err != nil {
		return err
	}
	o := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	return client.IgnoreNotFound(c.api.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(WatcherOwner)))
}
