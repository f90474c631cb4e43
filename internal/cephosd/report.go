package cephosd

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// report writes the status, and tells of what is news in it. The events go first, under names that follow from what
// they tell: whoever repeats this makes none twice, and one that died in between leaves none out.
func (c cephOSD) report(ctx context.Context, r activities.OSDSetReport) error {
	if r.Since.IsZero() {
		r.Since = time.Now()
	}
	var cause suspect
	if r.Halted != nil {
		var err error
		if cause, err = c.cause(ctx, r); err != nil {
			return err
		}
	}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		cr := &cephv1alpha1.CephOSD{}
		if err := c.api.Get(ctx, client.ObjectKey{Namespace: c.ref.Namespace, Name: c.ref.Name}, cr); err != nil {
			return err
		}
		now := statusOf(r, cause, cr.Status)
		if equality.Semantic.DeepEqual(now, cr.Status) {
			return nil
		}
		for _, n := range newsOf(cr.Status, now) {
			if err := c.emit(ctx, cr, n, r.Since); err != nil {
				return err
			}
		}
		cr.Status = now
		return c.api.Status().Update(ctx, cr, client.FieldOwner(kube.FieldOwner))
	})
	return client.IgnoreNotFound(err)
}

// news is worth an event.
type news struct {
	kind, reason, message string
	// id tells it from others of the same moment. The message does not: its wording may be another one when it is told
	// again.
	id string
}

// mostRefusalsTold bounds the events of one report; the status has all.
const mostRefusalsTold = 16

// newsOf is what somebody who knows the one status should hear of the other. A warning is what a person has to do
// something about: one for each field that makes no sense, and one for each halt. A wait that is worded anew is no
// news.
func newsOf(had, now cephv1alpha1.CephOSDStatus) (out []news) {
	var refused []cephv1alpha1.Refusal
	for _, e := range now.Refused {
		if !slices.Contains(had.Refused, e) {
			refused = append(refused, e)
		}
	}
	for i, e := range refused {
		if i == mostRefusalsTold {
			out = append(out, news{
				corev1.EventTypeWarning, reasonRefused,
				fmt.Sprintf("%d more fields make no sense: status.refused lists them", len(refused)-i), "more",
			})
			break
		}
		out = append(out, news{corev1.EventTypeWarning, reasonRefused, refusal(e), e.Field + e.Value})
	}
	switch h := now.Halted; {
	case h != nil && (had.Halted == nil || !had.Halted.Since.Equal(&h.Since)):
		return append(out, news{corev1.EventTypeWarning, reasonHalted, now.Message, h.Since.String()})
	case now.Reason == reasonHalted || now.Reason == reasonRefused:
		return out
	}
	if batch := nameOf(now.Batch); now.Reason != had.Reason || now.Batch != nil && batch != nameOf(had.Batch) {
		message := now.Message
		if message == "" {
			message = now.Progress + " OSDs are up to date"
		}
		out = append(out, news{corev1.EventTypeNormal, now.Reason, message, batch})
	}
	return out
}

// nameOf tells one batch, and how far it is, from another.
func nameOf(b *cephv1alpha1.BatchStatus) string {
	if b == nil {
		return ""
	}
	return strings.Join(append([]string{b.FailureDomain, b.Phase}, b.OSDs...), " ")
}

func (c cephOSD) emit(ctx context.Context, cr *cephv1alpha1.CephOSD, n news, since time.Time) error {
	at := metav1.NewTime(since)
	id := fnv.New64a()
	fmt.Fprintf(id, "%s %s %s", n.reason, n.id, at.UTC().Format(time.RFC3339Nano))
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: cr.Namespace, Name: fmt.Sprintf("%s.%016x", cr.Name, id.Sum64())},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: cephv1alpha1.GroupVersion.String(), Kind: cephv1alpha1.Kind, Namespace: cr.Namespace, Name: cr.Name,
			UID: cr.UID, ResourceVersion: cr.ResourceVersion,
		},
		Reason: n.reason, Message: input.Clip(n.message, mostOfEvent), Type: n.kind,
		Source: corev1.EventSource{Component: kube.FieldOwner}, ReportingController: "lockkeeper.io/update-osds",
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
	}
	if err := c.api.Create(ctx, e); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// mostOfEvent is how long a message the API server lets an event have.
const mostOfEvent = 1024
