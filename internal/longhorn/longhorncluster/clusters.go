package longhorncluster

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// API is what is asked of the API server, directly.
type API interface {
	client.Reader
	Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.PatchOption) error
}

// Clusters finds the installations of policies. It is safe for concurrent use.
type Clusters struct {
	kube   Kubernetes
	api    API
	caches *caches
}

// NewClusters makes Clusters of a client, and of what makes caches for watches.
func NewClusters(k Kubernetes, api API, newCache NewCache) *Clusters {
	return &Clusters{kube: k, api: api, caches: newCaches(newCache)}
}

// Close ends all watches.
func (c *Clusters) Close() { c.caches.close() }

// StorageCluster implements activities.StorageClusters.
func (c *Clusters) StorageCluster(ctx context.Context, key storage.ClusterKey) (activities.StorageCluster, error) {
	p, err := c.kube.MaintenancePolicy(ctx, key)
	if err != nil {
		return nil, err
	}
	return c.of(p), nil
}

// StorageClusterOf implements activities.StorageClusters.
func (c *Clusters) StorageClusterOf(ctx context.Context, p activities.Policy) (activities.StorageCluster, error) {
	if object, is := p.Object.(*v1alpha1.MaintenancePolicy); is {
		return c.of(object), nil
	}
	return c.StorageCluster(ctx, p.Key)
}

func (c *Clusters) of(p *v1alpha1.MaintenancePolicy) *cluster {
	return &cluster{kube: c.kube, policy: p, api: c.api, reader: New(c.api, p.Namespace), caches: c.caches}
}
