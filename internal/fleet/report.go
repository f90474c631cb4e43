package fleet

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// Reasons, as they appear in status, conditions and events.
const (
	reasonRefused  = "Refused"
	reasonHalted   = "Halted"
	reasonUpToDate = "UpToDate"
	reasonRolling  = "RollingOut"
)

func (c cephOSD) report(ctx context.Context, r activities.FleetReport) error {
	var had, now cephv1alpha1.CephOSDStatus
	cr := &cephv1alpha1.CephOSD{}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := c.api.Get(ctx, client.ObjectKey{Namespace: c.ref.Namespace, Name: c.ref.Name}, cr); err != nil {
			return err
		}
		had = cr.Status
		now = statusOf(r, had)
		cr.Status = now
		return c.api.Status().Update(ctx, cr, client.FieldOwner(kube.FieldOwner))
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if had.Reason == now.Reason && had.Message == now.Message {
		return nil
	}
	return c.emit(ctx, cr, r)
}

// statusOf is the status that a report describes.
func statusOf(r activities.FleetReport, had cephv1alpha1.CephOSDStatus) cephv1alpha1.CephOSDStatus {
	done, of := r.Counts.Progress()
	n := r.Counts
	s := cephv1alpha1.CephOSDStatus{
		ObservedGeneration: r.Generation, TemplateHash: r.Template, Progress: fmt.Sprintf("%d/%d", done, of), Workflow: r.WorkflowID, Foreign: r.Foreign,
		OSDs: cephv1alpha1.OSDCounts{
			Total: int32(n.Total), UpToDate: int32(n.UpToDate), OutOfDate: int32(n.OutOfDate), Ready: int32(n.Ready), Unready: int32(n.Unready),
			Missing: int32(n.Missing), NotReady: int32(n.Down + n.Unready), Invalid: int32(n.Invalid), Terminating: int32(n.Terminating), Superfluous: int32(n.Superfluous),
		},
		Conditions: had.Conditions,
	}
	s.Reason, s.Message = reasonRolling, phrase(r)
	for _, e := range slices.Concat(r.Refused, r.Warned) {
		s.Refused = append(s.Refused, cephv1alpha1.Refusal{Field: e.Field, Value: e.Value, Message: e.Allowed})
	}
	if b := r.Batch; b != nil {
		s.Batch = &cephv1alpha1.BatchStatus{FailureDomain: b.Domain.String(), OSDs: b.OSDs, Phase: r.Phase, Since: metav1.NewTime(b.Since)}
	}
	switch {
	case len(r.Refused) > 0:
		s.Reason, s.Message = reasonRefused, fmt.Sprintf("%s: %q: %s", r.Refused[0].Field, r.Refused[0].Value, r.Refused[0].Allowed)
	case r.Halted != nil:
		s.Reason, s.Message = reasonHalted, r.Halted.Reason
	case n.Settled() && r.Batch == nil:
		s.Reason, s.Message = reasonUpToDate, superfluous(r)
	}
	if h := r.Halted; h != nil {
		s.Halted = &cephv1alpha1.HaltedStatus{Reason: h.Reason, Since: metav1.NewTime(h.Since)}
	}
	set := func(kind string, is bool, reason, message string) {
		status := metav1.ConditionFalse
		if is {
			status = metav1.ConditionTrue
		}
		if message == "" {
			message = fmt.Sprintf("%d of %d OSDs are up to date", done, of)
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: r.Generation})
	}
	verdict := "Valid"
	if len(r.Refused) > 0 {
		verdict = reasonRefused
	}
	set(cephv1alpha1.ConditionValid, len(r.Refused) == 0, verdict, judgementOf(r))
	set(cephv1alpha1.ConditionUpToDate, n.Settled(), s.Reason, "")
	set(cephv1alpha1.ConditionProgressing, s.Reason == reasonRolling, s.Reason, s.Message)
	set(cephv1alpha1.ConditionHalted, r.Halted != nil, s.Reason, s.Message)
	return s
}

func judgementOf(r activities.FleetReport) string {
	if len(r.Refused) == 0 {
		return "the spec makes sense"
	}
	e := r.Refused[0]
	return fmt.Sprintf("%s: %q: %s", e.Field, e.Value, e.Allowed)
}

// phrase says what a rollout does or waits for.
func phrase(r activities.FleetReport) string {
	if r.Message == "" {
		return r.Phase
	}
	return clip("waits for " + r.Message)
}

func superfluous(r activities.FleetReport) string {
	if len(r.Waiting) == 0 {
		return ""
	}
	return clip(fmt.Sprintf("%s is no longer in the spec, and stays: %s", r.Waiting[0].Key, r.Waiting[0].Why))
}

// emit tells of what has changed. A warning is what a person has to do something about.
func (c cephOSD) emit(ctx context.Context, cr *cephv1alpha1.CephOSD, r activities.FleetReport) error {
	kind := corev1.EventTypeNormal
	if cr.Status.Reason == reasonHalted || cr.Status.Reason == reasonRefused {
		kind = corev1.EventTypeWarning
	}
	message := cr.Status.Message
	if message == "" {
		message = cr.Status.Progress + " OSDs are up to date"
	}
	at := metav1.NewTime(r.Since)
	if at.IsZero() {
		at = metav1.NewTime(time.Now())
	}
	id := fnv.New64a()
	fmt.Fprintf(id, "%s %s %s", cr.Status.Reason, message, at.UTC().Format(time.RFC3339Nano))
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: cr.Namespace, Name: fmt.Sprintf("%s.%016x", cr.Name, id.Sum64())},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: cephv1alpha1.GroupVersion.String(), Kind: cephv1alpha1.Kind, Namespace: cr.Namespace, Name: cr.Name, UID: cr.UID, ResourceVersion: cr.ResourceVersion,
		},
		Reason: cr.Status.Reason, Message: message, Type: kind, Source: corev1.EventSource{Component: kube.FieldOwner},
		ReportingController: "lockkeeper.io/update-osds", FirstTimestamp: at, LastTimestamp: at, Count: 1,
	}
	if err := c.api.Create(ctx, e); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}
