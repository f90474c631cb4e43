package worker

import (
	"context"
	"fmt"
	"sync"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Kinds finds the storage cluster of a policy by the policy's kind.
type Kinds struct {
	Policies activities.Policies
	Of       map[storage.Kind]activities.StorageClusters

	seen sync.Map // of storage.Kind by storage.ClusterKey; the kind of a policy never changes
}

// StorageCluster implements activities.StorageClusters. Which kind it is was seen by the look before, mostly.
func (k *Kinds) StorageCluster(ctx context.Context, key storage.ClusterKey) (activities.StorageCluster, error) {
	if kind, was := k.seen.Load(key); was {
		return k.Of[kind.(storage.Kind)].StorageCluster(ctx, key)
	}
	p, err := k.Policies.Policy(ctx, key)
	if err != nil {
		return nil, err
	}
	return k.StorageClusterOf(ctx, p)
}

// StorageClusterOf implements activities.StorageClusters.
func (k *Kinds) StorageClusterOf(ctx context.Context, p activities.Policy) (activities.StorageCluster, error) {
	clusters := k.Of[p.Kind]
	if clusters == nil {
		return nil, fmt.Errorf("MaintenancePolicy %s: this version knows no storage of kind %q", p.Key, p.Kind)
	}
	k.seen.Store(p.Key, p.Kind)
	return clusters.StorageClusterOf(ctx, p)
}
