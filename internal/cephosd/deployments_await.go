package cephosd

import (
	"context"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

// await waits for restarted OSDs to serve. The Deployments are asked for often at first and seldom once they are late;
// nodes and the policy, which hardly ever change, as seldom as a CephOSD is looked at anew; and Ceph only about what
// Kubernetes calls available.
func (d deployments) await(
	ctx context.Context, in activities.AwaitInput, beat func(activities.Arrival),
) (activities.Arrival, error) {
	var r *restarting
	var looked time.Time
	for pause := askCephAtFirst; ; pause = min(pause*5/4, askCephAtLeast) {
		var err error
		if time.Since(looked) >= lookAnewEvery {
			r, err = d.look(ctx)
			looked = time.Now()
		} else {
			err = d.list(ctx, r)
		}
		if err != nil {
			return activities.Arrival{}, err
		}
		if len(r.refuse) > 0 {
			return activities.Arrival{Moved: true}, nil // the next look says what is wrong
		}
		a, err := d.arrival(ctx, r, in, pause == askCephAtLeast)
		if err != nil || len(a.Waiting) == 0 {
			return a, err
		}
		beat(a)
		select {
		case <-ctx.Done():
			return a, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// arrival tells who does not serve yet; of those that are late, with what is the matter with their pods.
func (d deployments) arrival(
	ctx context.Context, r *restarting, in activities.AwaitInput, late bool,
) (a activities.Arrival, err error) {
	unavailable := map[string]bool{}
	for i := range r.list {
		unavailable[r.list[i].Name] = !kube.OSDAvailable(&r.list[i])
	}
	seen := cephcluster.OSDs{}
	asked := !slices.ContainsFunc(in.Keys, func(key string) bool { return unavailable[key] })
	if asked {
		if seen, err = d.ceph.OSDs(ctx, in.Cluster, false); err != nil {
			return a, err
		}
		if seen.Unavailable != "" {
			return activities.Arrival{Waiting: []activities.Superfluous{{Key: in.Keys[0], Why: seen.Unavailable}}}, nil
		}
	}
	for _, o := range d.osds(r, seen) {
		if !slices.Contains(in.Keys, o.Key) || o.Serves || !asked && !unavailable[o.Key] || len(a.Waiting) == progressWaited {
			continue
		}
		why := o.String() + " is not up in Ceph yet"
		if unavailable[o.Key] {
			if why, err = d.trouble(ctx, r, o, late); err != nil {
				return a, err
			}
		}
		a.Waiting = append(a.Waiting, activities.Superfluous{Key: o.Key, Why: why})
	}
	return a, nil
}

func (d deployments) trouble(ctx context.Context, r *restarting, o rollout.OSD, late bool) (string, error) {
	switch {
	case o.Away != "":
		return o.String() + ": " + o.Away, nil
	case !late:
		return o.String() + " is not ready yet", nil
	}
	pods, err := d.pods(ctx, r, []string{o.Key})
	if err != nil {
		return "", err
	}
	for i := range pods {
		if why := podspec.Trouble(&pods[i]); why != "" {
			return "pod " + pods[i].Name + " is not ready: " + why, nil
		}
	}
	return o.String() + " is not ready, and has no pod", nil
}
