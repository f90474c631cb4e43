package rookceph

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// Deploy hands the cluster that Prepare made to Kubernetes. Done again, it brings every object back to its first shape.
func Deploy(ctx context.Context, client kubernetes.Interface, inst instance.Instance, topo instance.Topology) error {
	c := cluster{inst: inst, topo: topo}
	id, err := c.loadIdentity()
	if err != nil {
		return fmt.Errorf("Ceph was not prepared: %w", err)
	}
	configMaps, err := c.configMaps(id)
	if err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}
	_, err = client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	// Configuration first: a pod that cannot find it is tried again only after a while.
	for _, s := range c.secrets(id) {
		if err := put(ctx, client.CoreV1().Secrets(Namespace), s); err != nil {
			return fmt.Errorf("secret %s: %w", s.Name, err)
		}
	}
	for _, m := range configMaps {
		if err := put(ctx, client.CoreV1().ConfigMaps(Namespace), m); err != nil {
			return fmt.Errorf("configmap %s: %w", m.Name, err)
		}
	}
	for _, d := range c.daemons() {
		if err := put(ctx, client.AppsV1().Deployments(Namespace), c.deployment(d)); err != nil {
			return fmt.Errorf("deployment %s: %w", d.name(), err)
		}
	}
	return nil
}

type writer[T any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
}

func put[T any](ctx context.Context, w writer[T], object T) error {
	_, err := w.Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = w.Update(ctx, object, metav1.UpdateOptions{})
	}
	return err
}
