package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Finalizer keeps a policy until its keeper has undone what it did for it.
const Finalizer = "lockkeeper.io/keeper"

// LeaveBehind is the annotation by which a person lets a policy go although not everything could be undone: "true".
const LeaveBehind = "lockkeeper.io/leave-behind"

// MaintenancePolicy reads a policy. The error wraps activities.ErrNotFound when there is none.
func (c *Cluster) MaintenancePolicy(ctx context.Context, key storage.ClusterKey) (*v1alpha1.MaintenancePolicy, error) {
	var p v1alpha1.MaintenancePolicy
	if err := c.api.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, &p); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("MaintenancePolicy %s: %w", key, activities.ErrNotFound)
		}
		return nil, err
	}
	c.read.Store(key, &p)
	return p.DeepCopy(), nil
}

// policyAs is the policy in a version that somebody has read, for who only reads its spec. It is read again if that was
// not here, or if this has read another one since.
func (c *Cluster) policyAs(
	ctx context.Context, key storage.ClusterKey, v activities.PolicyVersion,
) (*v1alpha1.MaintenancePolicy, error) {
	if last, is := c.read.Load(key); is && v.UID != "" {
		p := last.(*v1alpha1.MaintenancePolicy) //nolint:forcetypeassert // nothing else is stored
		if string(p.UID) == v.UID && p.Generation == v.Generation {
			return p, nil
		}
	}
	return c.MaintenancePolicy(ctx, key)
}

// remediationTimeout is long enough for a machine of metal to be started again.
const remediationTimeout = 20 * time.Minute

// Settings are the spec's timeouts and switches. The API server has filled in the defaults; a spec that never went
// through it has none, and then the same defaults hold.
func Settings(spec *v1alpha1.MaintenancePolicySpec) storage.Settings {
	s := storage.Settings{ManagePodBudgets: true, MaintenanceTimeout: 30 * time.Minute, AnnouncementTimeout: time.Minute}
	if f := spec.Fencing; f.API != "" && f.API != v1alpha1.FencingNone {
		s.Fencing = &storage.Fencing{API: string(f.API), Namespace: f.Namespace, Hold: string(f.Hold)}
		if s.RemediationTimeout = remediationTimeout; f.RemediationTimeout != nil {
			s.RemediationTimeout = f.RemediationTimeout.Duration
		}
	}
	if l := spec.Longhorn; l != nil {
		return longhornSettings(s, l)
	}
	ceph := spec.Ceph
	if ceph == nil {
		return s
	}
	if ceph.ManagePodBudgets != nil {
		s.ManagePodBudgets = *ceph.ManagePodBudgets
	}
	s.AllowMonQuorumLoss, s.AtRest = ceph.AllowMonQuorumLoss, storage.AtRest(ceph.AtRest)
	for to, from := range map[*time.Duration]*metav1.Duration{
		&s.MaintenanceTimeout: ceph.OSDMaintenanceTimeout, &s.PGHealthCheckTimeout: ceph.PGHealthCheckTimeout,
		&s.AnnouncementTimeout: ceph.AnnouncementTimeout,
	} {
		if from != nil {
			*to = from.Duration
		}
	}
	return s
}

// turnTimeout is long enough for an autoscaler, which gives a node up after two minutes of refused evictions, and for a
// drain that waits for workloads.
const turnTimeout = 10 * time.Minute

func longhornSettings(s storage.Settings, l *v1alpha1.LonghornSpec) storage.Settings {
	s.AtRest, s.RemovalTaintExpiry, s.AnnouncementTimeout = storage.AtRest(l.AtRest), DefaultTaintExpiry, turnTimeout
	if l.ManagePodBudgets != nil {
		s.ManagePodBudgets = *l.ManagePodBudgets
	}
	if l.RemovalTaintExpiry != nil {
		s.RemovalTaintExpiry = l.RemovalTaintExpiry.Duration
	}
	if l.TurnTimeout != nil {
		s.AnnouncementTimeout = l.TurnTimeout.Duration
	}
	s.DetachOnCordon, s.EvictOnRemoval = l.DetachOnCordon, l.EvictOnRemoval
	return s
}

// DefaultTaintExpiry is the age from which an autoscaler's taint does not count where a policy says nothing else.
const DefaultTaintExpiry = time.Hour

// ReportStatus implements activities.Policies: one request for the status, then one for each event, all at once: who
// waits for it has to open or close something.
func (c *Cluster) ReportStatus(ctx context.Context, key storage.ClusterKey, r activities.Report) error {
	policy, err := c.writeUponLast(ctx, key, r)
	if policy == nil && err == nil {
		err = retry.RetryOnConflict(retry.DefaultRetry, func() (err error) {
			if policy, err = c.MaintenancePolicy(ctx, key); err != nil {
				return err
			}
			return c.writeStatus(ctx, key, policy, r)
		})
	}
	if err != nil {
		return err
	}
	var all errgroup.Group
	for _, e := range r.Events {
		all.Go(func() error {
			if err := c.emit(ctx, policy, e); err != nil {
				return fmt.Errorf("event %s: %w", e.Reason, err)
			}
			return nil
		})
	}
	return all.Wait()
}

// writeUponLast writes a status upon the one that was written last; nil: there is none, or it is not the last any more.
func (c *Cluster) writeUponLast(
	ctx context.Context, key storage.ClusterKey, r activities.Report,
) (*v1alpha1.MaintenancePolicy, error) {
	last, is := c.written.LoadAndDelete(key)
	if !is {
		return nil, nil //nolint:nilnil // nil is an answer: read it
	}
	p := last.(*v1alpha1.MaintenancePolicy).DeepCopy() //nolint:forcetypeassert // writeStatus keeps nothing else
	err := c.writeStatus(ctx, key, p, r)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // as above
	}
	return p, err
}

// writeStatus writes a status upon the policy as it was seen, which then is as it was written.
func (c *Cluster) writeStatus(
	ctx context.Context, key storage.ClusterKey, seen *v1alpha1.MaintenancePolicy, r activities.Report,
) error {
	seen.Status = statusOf(KindOf(seen), r, seen.Status)
	if err := c.api.Status().Update(ctx, seen, client.FieldOwner(FieldOwner)); err != nil {
		return err
	}
	c.written.Store(key, seen.DeepCopy())
	return nil
}

// Guard implements activities.Policies.
func (c *Cluster) Guard(ctx context.Context, key storage.ClusterKey, on bool) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		p, err := c.MaintenancePolicy(ctx, key)
		if err != nil {
			return err
		}
		before := p.DeepCopy()
		changed := false
		if on && p.DeletionTimestamp.IsZero() {
			changed = controllerutil.AddFinalizer(p, Finalizer)
		} else if !on {
			changed = controllerutil.RemoveFinalizer(p, Finalizer)
		}
		if !changed {
			return nil
		}
		return client.IgnoreNotFound(
			c.api.Patch(ctx, p, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
	})
}

// Ending implements activities.Policies.
func (c *Cluster) Ending(ctx context.Context, key storage.ClusterKey) (e budget.Ending, err error) {
	p, err := c.MaintenancePolicy(ctx, key)
	if errors.Is(err, activities.ErrNotFound) {
		return budget.Ending{Gone: true}, nil
	}
	if err != nil {
		return e, err
	}
	e.Leave = p.Annotations[LeaveBehind] == "true"
	n, err := c.typed.CoreV1().Namespaces().Get(ctx, key.Namespace, metav1.GetOptions{})
	if apierrors.IsForbidden(err) {
		return e, nil // a right that older manifests lack; then only a person can say so
	}
	e.NamespaceGoes = err == nil && !n.DeletionTimestamp.IsZero()
	return e, err
}

// NamespaceUID is the UID of a namespace.
func (c *Cluster) NamespaceUID(ctx context.Context, name string) (string, error) {
	n, err := c.typed.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return string(n.UID), nil
}

// TellOfNamespace implements activities.Policies.
func (c *Cluster) TellOfNamespace(ctx context.Context, key storage.ClusterKey, e activities.Event) error {
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: key.Namespace}
	return c.create(ctx, about, metav1.NamespaceDefault, e)
}

// emit creates one event. Its name is made of what it says and when, so that a repeated report does not repeat it.
func (c *Cluster) emit(ctx context.Context, p *v1alpha1.MaintenancePolicy, e activities.Event) error {
	about := corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "MaintenancePolicy",
		Namespace: p.Namespace, Name: p.Name, UID: p.UID,
	}
	namespace := p.Namespace
	if e.Node != "" {
		// Events of cluster-scoped objects live in "default"; kubectl describe node finds them by the name as UID.
		about = corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: e.Node, UID: nodeEventUID(e.Node)}
		namespace = metav1.NamespaceDefault
	}
	return c.create(ctx, about, namespace, e)
}

func (c *Cluster) create(
	ctx context.Context, about corev1.ObjectReference, namespace string, e activities.Event,
) error {
	at := metav1.NewTime(e.At)
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	ev := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: eventName(about.Name, e)},
		InvolvedObject: about, Reason: e.Reason, Message: e.Message, Type: kind,
		Source: corev1.EventSource{Component: FieldOwner}, ReportingController: "lockkeeper.io/keeper",
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
	}
	if err := c.api.Create(ctx, ev); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// ConfigMapValue returns one key of a ConfigMap.
func (c *Cluster) ConfigMapValue(ctx context.Context, namespace, name, key string) (string, error) {
	m, err := c.typed.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	v, ok := m.Data[key]
	if !ok {
		return "", fmt.Errorf("ConfigMap %s/%s has no key %q; it has %q", namespace, name, key,
			slices.Sorted(maps.Keys(m.Data)))
	}
	return v, nil
}

// SecretValue returns one key of a Secret. Its errors name keys, never values.
func (c *Cluster) SecretValue(ctx context.Context, namespace, name, key string) (string, error) {
	s, err := c.typed.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	v, ok := s.Data[key]
	if !ok {
		return "", fmt.Errorf("Secret %s/%s has no key %q; it has %q", namespace, name, key, slices.Sorted(maps.Keys(s.Data)))
	}
	return string(v), nil
}
