package cephcluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/internal/upgrade"
)

// Versions is which versions of Ceph a storage cluster runs.
type Versions struct {
	Unavailable string // why there is no answer; then nothing else is set
	Mons        int    // the oldest release that a mon may have
	Required    string // the release that every OSD has at least, by name
	// OSDs are the versions that OSDs said when they last started. What never started is missing.
	OSDs map[int]upgrade.Version
	// Elsewhere says what else is being upgraded, and by whom; "": nothing.
	Elsewhere string
}

// Versions asks which versions of Ceph a policy's cluster runs.
func (c *Clusters) Versions(ctx context.Context, key storage.ClusterKey) (Versions, error) {
	x, err := c.cluster(ctx, key)
	if err != nil {
		return Versions{}, err
	}
	reading, err := x.read(ctx)
	if err != nil || reading.Unavailable != "" {
		return Versions{Unavailable: reading.Unavailable}, err
	}
	said, err := x.client.OSDMetadata(ctx)
	if err != nil {
		return Versions{}, err
	}
	_, mons, err := x.kube.DaemonPods(ctx, x.policy)
	if err != nil {
		return Versions{}, wrap(err, "list mon pods")
	}
	out := Versions{
		Mons: reading.Quorum.MonMap.MinRelease, Required: reading.Map.RequireRelease,
		OSDs: map[int]upgrade.Version{},
	}
	for _, m := range said {
		if v, err := upgrade.ParseVersion(m.Version); err == nil {
			out.OSDs[m.ID] = v
		}
	}
	if out.Elsewhere = underWay(reading.Status); out.Elsewhere == "" {
		out.Elsewhere = mixedImages(mons)
	}
	return out, nil
}

// MonVersions asks which version each mon of a policy's cluster runs, by its name: what it said when it last came into
// quorum. unavailable says why there is no answer.
func (c *Clusters) MonVersions(
	ctx context.Context, key storage.ClusterKey,
) (runs map[string]upgrade.Version, unavailable string, err error) {
	x, err := c.cluster(ctx, key)
	if err != nil {
		return nil, "", err
	}
	said, err := x.client.MonVersions(ctx)
	if unavailable = ceph.Lacks(err); unavailable != "" {
		return nil, unavailable, nil
	}
	return upgrade.ParseVersions(said), "", err
}

// underWay is what cephadm says of its upgrade: the manager shows it as "Upgrade to 18.2.7", or "Upgrade of osd daemons
// to …".
func underWay(s ceph.Status) string {
	for _, id := range slices.Sorted(maps.Keys(s.Progress)) {
		if m := s.Progress[id].Message; strings.HasPrefix(m, "Upgrade") {
			return "cephadm is at it: " + m
		}
	}
	return ""
}

// mixedImages: somebody is replacing the mons one by one, as Rook's operator does.
func mixedImages(mons []storageview.MonPod) string {
	first := slices.IndexFunc(mons, func(m storageview.MonPod) bool { return m.Image != "" })
	for _, m := range mons[max(first, 0):] {
		if m.Image != "" && m.Image != mons[first].Image {
			return fmt.Sprintf("the upgrade of the mons is under way: mon.%s runs %s and mon.%s %s",
				mons[first].Mon, mons[first].Image, m.Mon, m.Image)
		}
	}
	return ""
}
