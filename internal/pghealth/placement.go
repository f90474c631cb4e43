package pghealth

import (
	"cmp"
	"maps"
	"slices"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// placement is what decides where data is: when it changes, what was known of the placement groups is out of date.
//
// OSDs that go up or down leave an epoch in the OSD map. In and out, weights, pools and the CRUSH map leave none, so
// two placements are compared field by field. Left out is what moves data without taking copies away: upmaps, which the
// balancer changes all the time, and temporary placements; their old copies serve until the new ones are whole.
type placement struct {
	changeEpoch  int64
	lastInChange string        // an OSD that went out and in again between two looks left this
	crush        string        // the CRUSH map's digest
	up           map[int]int64 // OSDs that are up → since which epoch
	weights      []weight      // of the OSDs that are not simply in
	pools        []ceph.Pool
	pgs          int // of all pools
}

// weight is that of an OSD that is out, or in by half.
type weight struct {
	osd    int
	in     bool
	weight float64
}

func placementOf(m *ceph.OSDMap) placement {
	p := placement{
		changeEpoch:  m.ChangeEpoch(),
		lastInChange: m.LastInChange,
		crush:        m.CrushDigest,
		up:           make(map[int]int64, len(m.OSDs)),
		pools:        slices.Clone(m.Pools),
		pgs:          countPGs(m.Pools),
	}
	for i := range m.OSDs {
		o := &m.OSDs[i]
		if o.Up {
			p.up[o.ID] = o.UpFrom
		}
		if o.Is("exists") && !(bool(o.In) && o.Weight == 1) {
			p.weights = append(p.weights, weight{osd: o.ID, in: bool(o.In), weight: o.Weight})
		}
	}
	slices.SortFunc(p.weights, func(a, b weight) int { return cmp.Compare(a.osd, b.osd) })
	slices.SortFunc(p.pools, func(a, b ceph.Pool) int { return cmp.Compare(a.ID, b.ID) })
	return p
}

func countPGs(pools []ceph.Pool) int {
	n := 0
	for _, pool := range pools {
		n += pool.PGNum
	}
	return n
}

func (p placement) equal(q placement) bool {
	return p.changeEpoch == q.changeEpoch && maps.Equal(p.up, q.up) && p.sameButUpDown(q)
}

func (p placement) sameButUpDown(q placement) bool {
	return p.lastInChange == q.lastInChange && p.crush == q.crush &&
		slices.Equal(p.weights, q.weights) && slices.Equal(p.pools, q.pools)
}
