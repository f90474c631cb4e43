// Package adapters makes what lockkeeper's activities reach the world by: Kubernetes, Ceph by its own library, and
// Longhorn.
package adapters

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/ceph/rados"
	"github.com/lockkeeper/lockkeeper/internal/cephmon"
	"github.com/lockkeeper/lockkeeper/internal/cephosd"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/longhorn/longhorncluster"
	"github.com/lockkeeper/lockkeeper/internal/machines"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/worker"
)

// Adapters are those of one Kubernetes cluster, with connections that Close ends.
type Adapters struct {
	worker.Adapters
	closes []func()
}

// New makes them. Nothing is connected before somebody asks.
func New(cfg *rest.Config) (*Adapters, error) {
	cluster, err := kube.New(cfg)
	if err != nil {
		return nil, err
	}
	typed, api := cluster.Clients()
	cephs := cephcluster.New(cluster, rados.Dialer{})
	longhorns := longhorncluster.NewClusters(cluster, api, kube.CacheOf(cfg))
	kinds := &worker.Kinds{Policies: cluster, Of: map[storage.Kind]activities.StorageClusters{
		storage.Ceph: cephs, storage.Longhorn: longhorns,
	}}
	return &Adapters{
		Adapters: worker.Adapters{
			Policies: cluster, Budgets: cluster, Nodes: cluster, Clusters: kinds,
			OSDSets: cephosd.New(typed, api, cephs).Asking(cluster.May), Machines: machines.Fencer{Client: api},
			Mons: cephmon.New(typed, api, monClusters{cephs}),
		},
		closes: []func(){longhorns.Close, cephs.Close},
	}, nil
}

// monClusters are Ceph clusters as cephmon asks them.
type monClusters struct{ *cephcluster.Clusters }

// Client implements cephmon.Clusters.
func (c monClusters) Client(ctx context.Context, key storage.ClusterKey) (cephmon.Ceph, error) {
	return c.Clusters.Client(ctx, key)
}

// Apart implements cephmon.Clusters.
func (c monClusters) Apart(ctx context.Context, key storage.ClusterKey) (cephmon.Remover, func(), error) {
	return c.Clusters.Apart(ctx, key)
}

// Close ends all connections.
func (a *Adapters) Close() {
	for _, end := range a.closes {
		end()
	}
}
