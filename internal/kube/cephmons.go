package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
)

// CephMon reads a CephMon, or returns activities.ErrNotFound.
func (c *Cluster) CephMon(ctx context.Context, namespace, name string) (*v1alpha1.CephMon, error) {
	var m v1alpha1.CephMon
	err := c.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &m)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("CephMon %s/%s: %w", namespace, name, activities.ErrNotFound)
	}
	return &m, err
}

// CephMons lists those of a namespace. Where there is no such kind there are none.
func (c *Cluster) CephMons(ctx context.Context, namespace string) ([]v1alpha1.CephMon, error) {
	var all v1alpha1.CephMonList
	err := c.api.List(ctx, &all, client.InNamespace(namespace))
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	return all.Items, err
}

// DeleteMonClaim deletes the volume claim of a mon that has gone. One that is gone already is no error; one that a pod
// uses Kubernetes keeps until the pod is gone.
func (c *Cluster) DeleteMonClaim(ctx context.Context, namespace, claim, mon string) error {
	var pvc corev1.PersistentVolumeClaim
	if err := c.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: claim}, &pvc); err != nil {
		return client.IgnoreNotFound(err)
	}
	if of := pvc.Labels[MonLabel]; of != "" && of != mon {
		return fmt.Errorf("is of mon.%s", of)
	}
	return client.IgnoreNotFound(c.api.Delete(ctx, &pvc, client.Preconditions{UID: &pvc.UID}))
}

// ForgetMonStorage writes which storage of gone mons is left.
func (c *Cluster) ForgetMonStorage(
	ctx context.Context, m *v1alpha1.CephMon, left []v1alpha1.MonStorageLeft,
) error {
	m = m.DeepCopy()
	m.Status.Left = left
	return c.api.Status().Update(ctx, m)
}
