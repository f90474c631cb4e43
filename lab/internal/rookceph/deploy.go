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

// Deploy hands the cluster that Prepare made to Kubernetes, and returns the names of its monitors. Done again, it
// brings every object back to its first shape but those of the monitors: they belong to whoever looks after monitors.
func Deploy(
	ctx context.Context, client kubernetes.Interface, inst instance.Instance, topo instance.Topology,
) (mons []string, err error) {
	c := cluster{inst: inst, topo: topo}
	id, err := c.loadIdentity()
	if err != nil {
		return nil, fmt.Errorf("Ceph was not prepared: %w", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}
	_, err = client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	// Configuration first: a pod that cannot find it is tried again only after a while.
	for _, s := range c.secrets(id) {
		if err := put(ctx, client.CoreV1().Secrets(Namespace), s); err != nil {
			return nil, fmt.Errorf("secret %s: %w", s.Name, err)
		}
	}
	if err := put(ctx, client.CoreV1().ConfigMaps(Namespace), c.configMap(id)); err != nil {
		return nil, fmt.Errorf("configmap %s: %w", configMapConfig, err)
	}
	if mons, err = c.deployWhereabouts(ctx, client); err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, name := range mons {
		known[name] = true
	}
	if err := c.deployMons(ctx, client, known); err != nil {
		return nil, err
	}
	for _, d := range c.daemons()[c.topo.Mons:] {
		if err := put(ctx, client.AppsV1().Deployments(Namespace), c.deployment(d)); err != nil {
			return nil, fmt.Errorf("deployment %s: %w", d.name(), err)
		}
	}
	return mons, nil
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
