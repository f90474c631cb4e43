package cephcluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// OSD is one OSD as Ceph knows it.
type OSD struct {
	ID     int
	Up     bool
	UpFrom int64 // the map's epoch since which it is up; it grows with every start
	// Serving: it exists and was up once; one that is new is missed by nobody.
	Serving bool
	// Location names the buckets above it, by type: zone → zone-x. Of the pools' failure domain it is in Domain.
	Location map[string]string
	Domain   string
	// Pod, Host and Data are what it said of itself when it last started: its pod, its node (or its pod, where nobody told
	// it the node), and the path of its store.
	Pod, Host, Data string
	// Slow: Ceph's health says that it has slow operations.
	Slow bool
	// Unheard: it is up, and has no session with any monitor.
	Unheard bool
}

// OSDs is all OSDs of a Ceph cluster, as of one epoch.
type OSDs struct {
	Unavailable string // why there is no answer; then nothing else is set
	DomainType  string // of the pools' smallest failure domain
	ChangeEpoch int64
	// Types are those that a place in the CRUSH map can have, the smallest first as the tree has them: osd, host, …, root.
	Types []string
	OSDs  []OSD
}

// OSDs looks at the OSDs of a policy's Ceph cluster. metadata asks for what they said of themselves, which is much more
// to send.
func (c *Clusters) OSDs(ctx context.Context, key storage.ClusterKey, metadata bool) (OSDs, error) {
	x, err := c.cluster(ctx, key)
	if err != nil {
		return OSDs{}, err
	}
	reading, err := inTheEnd(ctx, x.read)
	if err != nil {
		return OSDs{}, err
	}
	if reading.Unavailable != "" {
		return OSDs{Unavailable: reading.Unavailable}, nil
	}
	tree := failuredomain.NewTree(reading.Crush)
	smallest, err := tree.Smallest(reading.Map.Pools)
	if err != nil {
		return OSDs{Unavailable: "the failure domain is not known: " + err.Error()}, nil //nolint:nilerr // an answer of its own
	}
	said := map[int]ceph.OSDMetadata{}
	if metadata {
		all, err := x.client.OSDMetadata(ctx)
		if err != nil {
			return OSDs{}, err
		}
		for _, m := range all {
			said[m.ID] = m
		}
	}
	out := OSDs{DomainType: smallest.Type, ChangeEpoch: reading.Map.ChangeEpoch(), Types: tree.Types()}
	slow := reading.Status.SlowOSDs()
	for i := range reading.Map.OSDs {
		o := &reading.Map.OSDs[i]
		out.OSDs = append(out.OSDs, OSD{
			ID: o.ID, Up: bool(o.Up), UpFrom: o.UpFrom, Serving: o.Serving(), Location: tree.Location(o.ID),
			Domain: tree.Find(o.ID, smallest.Type), Pod: said[o.ID].PodName, Host: said[o.ID].Hostname, Data: said[o.ID].Data,
			Slow: slow[o.ID], Unheard: slices.Contains(reading.Disconnected.OSDs, o.ID),
		})
	}
	return out, nil
}

// inTheEnd reads until it is known who has lost the monitors, and who only turned to another one. A worker that has not
// asked for long takes some seconds, and whoever asks only now and then would never know.
func inTheEnd(ctx context.Context, read func(context.Context) (ceph.Reading, error)) (r ceph.Reading, err error) {
	const most, pause = 8 * time.Second, time.Second
	for began := time.Now(); ; {
		r, err = read(ctx)
		if err != nil || len(r.Disconnected.Presumed) == 0 || time.Since(began) >= most {
			return r, err
		}
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// OKToStop asks which of these OSDs may stop together now: all of them, or else as many as can be found that Ceph can
// spare. When it can spare none the answer is why not all of them.
func (c *Clusters) OKToStop(ctx context.Context, key storage.ClusterKey, osds []int) ([]int, storage.Answer, error) {
	x, err := c.cluster(ctx, key)
	if err != nil {
		return nil, storage.Answer{}, err
	}
	return x.spared(ctx, osds)
}

// spared leaves the groups of tolerated pools out of every question, as the decision to open a failure domain does:
// Ceph would say no for ever in a failure domain that is open.
func (c *cluster) spared(ctx context.Context, osds []int) ([]int, storage.Answer, error) {
	var tolerated []int
	if len(c.policy.Spec.Ceph.ToleratedPools) > 0 { // their ids are in the map
		m, err := c.client.OSDDump(ctx)
		if err != nil {
			return nil, storage.Answer{}, err
		}
		tolerated = c.toleratedPools(m)
	}
	return spare(osds, func(osds []int) (storage.Answer, error) { return c.client.OKToStop(ctx, osds, tolerated...) })
}

// spare looks for a set of OSDs to which nothing can be added.
func spare(osds []int, ask func([]int) (storage.Answer, error)) ([]int, storage.Answer, error) {
	all, err := ask(osds)
	if err != nil || all.OK || len(osds) <= 1 {
		return osds, all, err
	}
	set := []int{}
	for _, half := range halves(osds) {
		if set, err = grow(set, half, ask); err != nil {
			return nil, storage.Answer{}, err
		}
	}
	if len(set) == 0 {
		return osds, all, nil
	}
	return set, storage.Answer{OK: true}, nil
}

// grow adds those of the candidates that may stop together with the set: all at once if that is fine, and otherwise by
// halves, so that one which has to stay keeps none of the others, wherever it is in the list.
func grow(set, candidates []int, ask func([]int) (storage.Answer, error)) ([]int, error) {
	if len(candidates) == 0 {
		return set, nil
	}
	wanted := slices.Concat(set, candidates)
	a, err := ask(wanted)
	switch {
	case err != nil:
		return nil, err
	case a.OK:
		return wanted, nil
	case len(candidates) == 1:
		return set, nil
	}
	for _, half := range halves(candidates) {
		if set, err = grow(set, half, ask); err != nil {
			return nil, err
		}
	}
	return set, nil
}

func halves(osds []int) [2][]int {
	middle := (len(osds) + 1) / 2
	return [2][]int{osds[:middle], osds[middle:]}
}

// SafeToDestroy asks of each of these OSDs whether nobody needs its data.
func (c *Clusters) SafeToDestroy(
	ctx context.Context, key storage.ClusterKey, osds []int,
) (map[int]storage.Answer, error) {
	x, err := c.cluster(ctx, key)
	if err != nil {
		return nil, err
	}
	return x.client.SafeToDestroy(ctx, osds)
}

func (c *Clusters) cluster(ctx context.Context, key storage.ClusterKey) (*cluster, error) {
	s, err := c.StorageCluster(ctx, key)
	if err != nil {
		return nil, err
	}
	x, ok := s.(*cluster)
	if !ok {
		return nil, fmt.Errorf("MaintenancePolicy %s is not of a Ceph cluster", key)
	}
	return x, nil
}
