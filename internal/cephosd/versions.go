package cephosd

import (
	"context"
	"fmt"

	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/internal/upgrade"
)

// This file says what Ceph's rules of versions need to know of OSDs.

// about is what upgrade.Judge has to know of the storage cluster for some OSDs.
func about(seen cephcluster.Versions, up func(osd int) bool, osds []int) upgrade.Cluster {
	out := upgrade.Cluster{
		Mons: seen.Mons, RequiredOfOSDs: seen.Required, Elsewhere: seen.Elsewhere,
		OSDs: map[string]upgrade.Version{},
	}
	for id, v := range seen.OSDs {
		if !up(id) {
			continue // it may have died long ago
		}
		if out.Oldest == (upgrade.Version{}) || v.Compare(out.Oldest) < 0 {
			out.Oldest = v
		}
	}
	for _, id := range osds {
		if v, said := seen.OSDs[id]; said {
			out.OSDs[osdName(id)] = v
		}
	}
	return out
}

// hasAgainst is what Ceph has against an OSD that went first: slow operations, or another version than its image has.
// A version of zero is not known.
func (f *OSDSets) hasAgainst(
	ctx context.Context, cluster storage.ClusterKey, o cephcluster.OSD, image string, has upgrade.Version,
) (string, error) {
	switch {
	case o.Slow:
		return osdName(o.ID) + " has slow operations", nil
	case has == upgrade.Version{}:
		return "", nil
	}
	seen, err := f.ceph.Versions(ctx, cluster)
	if err != nil {
		return "", err
	}
	if runs, said := seen.OSDs[o.ID]; said && runs != has {
		return fmt.Sprintf("%s runs Ceph %s, and %s has %s", osdName(o.ID), runs, image, has), nil
	}
	return "", nil
}
