package cephosd

import (
	"context"
	"slices"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// standing is how a batch stands.
type standing struct {
	// running are those that still run as they were.
	running []rollout.OSD
	// whole leaves out those that cannot go without others that are not among them; nil: each can.
	whole func([]rollout.OSD) []rollout.OSD
}

// Spare implements activities.OSDSets. What does not run any more, or never served, takes nothing from anybody; for the
// rest Ceph has the last word, and only as long as nothing has happened since the lease was granted: what its manager
// says is seconds old, and the keeper has proved only that it was true then.
//
// When some do not run any more, an attempt before this one has stopped them: they come back, and the others come
// later. To ask for those would be to ask about a cluster in which we have changed something ourselves.
func (f *OSDSets) Spare(ctx context.Context, in activities.Replacement) ([]rollout.OSD, storage.Answer, error) {
	now, answer, err := f.of(in.OSDSet).running(ctx, in)
	if err != nil || !answer.OK {
		return nil, answer, err
	}
	if stopped := without(in.OSDs, now.running); len(stopped) > 0 {
		return stopped, storage.Answer{OK: true}, nil
	}
	seen, err := f.ceph.OSDs(ctx, in.Cluster, false)
	if err != nil {
		return nil, storage.Answer{}, err
	}
	if seen.Unavailable != "" {
		return nil, storage.Answer{Reason: seen.Unavailable}, nil
	}
	up := map[string]int{}
	for _, o := range seen.OSDs {
		if o.Up {
			up[osdName(o.ID)] = o.ID
		}
	}
	var ask []int
	for _, o := range in.OSDs {
		if id, isUp := up[o.Name]; isUp {
			ask = append(ask, id)
		}
	}
	var spared []int
	if len(ask) > 0 {
		if in.Epoch != 0 && seen.ChangeEpoch > in.Epoch {
			return nil, storage.Answer{Reason: "an OSD went up or down since the lease was granted"}, nil
		}
		if spared, answer, err = f.ceph.OKToStop(ctx, in.Cluster, ask); err != nil {
			return nil, storage.Answer{}, err
		}
		if !answer.OK {
			spared = nil
		}
	}
	var out []rollout.OSD
	for _, o := range in.OSDs {
		if id, isUp := up[o.Name]; !isUp || slices.Contains(spared, id) {
			out = append(out, o)
		}
	}
	return together(out, now, answer)
}

// Alive implements activities.OSDSets. When some of the batch do not run any more, an attempt before this one has
// stopped them: it had asked, and they come back. OSDs that Ceph does not call up are missed by nobody who does not
// know.
func (f *OSDSets) Alive(ctx context.Context, in activities.Replacement) (storage.Answer, error) {
	now, answer, err := f.of(in.OSDSet).running(ctx, in)
	if err != nil || !answer.OK || len(without(in.OSDs, now.running)) > 0 {
		return answer, err
	}
	seen, err := f.ceph.OSDs(ctx, in.Cluster, false)
	if err != nil || seen.Unavailable != "" {
		return storage.Answer{Reason: seen.Unavailable}, err
	}
	var batch []int
	serves := false
	for _, o := range seen.OSDs {
		if slices.ContainsFunc(in.OSDs, func(x rollout.OSD) bool { return x.Name == osdName(o.ID) }) {
			batch, serves = append(batch, o.ID), serves || o.Up
		}
	}
	if !serves {
		return storage.Answer{OK: true}, nil // what is down already takes nothing from anybody
	}
	l, err := f.ceph.Life(ctx, in.Cluster, batch)
	return storage.Answer{OK: l.Silent == 0, Reason: l.String()}, err
}

// together is what may go of those that Ceph spares, or why nothing.
func together(spared []rollout.OSD, now standing, answer storage.Answer) ([]rollout.OSD, storage.Answer, error) {
	if len(spared) == 0 {
		return nil, storage.Answer{Reason: answer.Reason}, nil
	}
	if now.whole == nil {
		return spared, storage.Answer{OK: true}, nil
	}
	whole := now.whole(slices.Clone(spared))
	if len(whole) == 0 {
		return nil, storage.Answer{Reason: spared[0].String() +
			" waits for a device of an OSD that cannot be spared together with it"}, nil
	}
	return whole, storage.Answer{OK: true}, nil
}

// without leaves out the others.
func without(osds, others []rollout.OSD) []rollout.OSD {
	return slices.DeleteFunc(slices.Clone(osds), func(o rollout.OSD) bool {
		return slices.ContainsFunc(others, func(other rollout.OSD) bool { return other.Key == o.Key })
	})
}
