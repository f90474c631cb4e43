package cephcluster

import (
	"context"
	"slices"

	"github.com/lockkeeper/lockkeeper/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Mons is the monmap of a Ceph cluster, and who is in quorum.
type Mons struct {
	Unavailable string // why there is no answer; then nothing else is set
	Map         quorum.Map
	// Election rises whenever the mons elect a leader, which they do when one of them comes or goes.
	Election int64
}

// Mons looks at the mons of a policy's Ceph cluster.
func (c *Clusters) Mons(ctx context.Context, key storage.ClusterKey) (Mons, error) {
	x, err := c.cluster(ctx, key)
	if err != nil {
		return Mons{}, err
	}
	reading, err := x.read(ctx)
	if err != nil || reading.Unavailable != "" {
		return Mons{Unavailable: reading.Unavailable}, err
	}
	out := Mons{Election: reading.Quorum.ElectionEpoch}
	for _, m := range reading.Quorum.MonMap.Mons {
		out.Map = append(out.Map, quorum.Mon{Name: m.Name, Alive: slices.Contains(reading.Quorum.QuorumNames, m.Name)})
	}
	return out, nil
}
