package cephosd

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
)

// How often Ceph is asked whether the OSDs are up: often as long as they are expected, seldom once they are late. Pods
// are watched, not asked for, but looked at anew now and then: a watch may end, and then one begins with a list.
const (
	askCephAtFirst = 300 * time.Millisecond
	askCephAtLeast = 5 * time.Second
	lookAnewEvery  = 15 * time.Second
	askSpecEvery   = 10 * time.Second
	progressWaited = 16 // waiting OSDs that are named
)

// await waits for OSDs to serve: ready in Kubernetes, and up in Ceph in a later life than before.
func (c cephOSD) await(
	ctx context.Context, in activities.AwaitInput, beat func(activities.Arrival),
) (activities.Arrival, error) {
	pause := askCephAtFirst
	for {
		a, done, err := c.awaitOnce(ctx, in, beat, &pause)
		if done || err != nil {
			return a, err
		}
	}
}

// awaitOnce does so for as long as one watch lasts, and keeps to the pause between two questions to Ceph.
func (c cephOSD) awaitOnce(
	ctx context.Context, in activities.AwaitInput, beat func(activities.Arrival), pause *time.Duration,
) (activities.Arrival, bool, error) {
	set, found, err := c.spec(ctx)
	if err != nil || !found || set.Hash != in.Template {
		return activities.Arrival{Moved: err == nil}, err == nil, err
	}
	var seen activities.Survey
	s, err := c.look(ctx, set, &seen)
	if err != nil {
		return activities.Arrival{}, false, err
	}
	if len(s.refused) > 0 || seen.Unavailable == "" && s.needsAHand() {
		return activities.Arrival{Moved: true}, true, nil
	}
	pods := c.typed.CoreV1().Pods(c.ref.Namespace)
	selector := podspec.OwnerLabel + "=" + podspec.Owner(c.ref.Name)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return activities.Arrival{}, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookAnewEvery)
	defer cancel()
	w, err := pods.Watch(ctx, metav1.ListOptions{LabelSelector: selector, ResourceVersion: list.ResourceVersion})
	if err != nil {
		return activities.Arrival{}, false, err
	}
	defer w.Stop()
	all := map[string]*corev1.Pod{}
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
	}
	spec := time.NewTicker(askSpecEvery)
	defer spec.Stop()
	for {
		a, err := c.arrival(ctx, s, in, all)
		switch {
		case ctx.Err() != nil: // in the middle of a question
			return a, false, ctxErr(ctx)
		case err != nil:
			return a, false, err
		}
		if len(a.Waiting) == 0 {
			return a, true, nil
		}
		beat(a)
		select {
		case e, open := <-w.ResultChan():
			*pause = askCephAtFirst
			if !open || e.Type == watch.Error {
				return a, false, nil
			}
			if p, ok := e.Object.(*corev1.Pod); ok && e.Type != watch.Deleted {
				all[p.Name] = p
			} else if ok {
				delete(all, p.Name)
			}
		case <-time.After(*pause):
			*pause = min(*pause*5/4, askCephAtLeast)
		case <-spec.C:
			if now, found, err := c.spec(ctx); err == nil && (!found || now.Hash != in.Template) {
				return activities.Arrival{Moved: true}, true, nil
			}
		case <-ctx.Done():
			return a, false, ctxErr(ctx)
		}
	}
}

// needsAHand tells whether there is more to do than to wait: a pod has to be made, or one that has ended to be taken
// away.
func (s *state) needsAHand() bool {
	discard, _ := s.discardable(time.Now())
	return len(discard) > 0 || slices.ContainsFunc(s.osds(),
		func(o rollout.OSD) bool { return o.State == rollout.Missing })
}

// ctxErr is nil when only our own minute is over.
func ctxErr(ctx context.Context) error {
	if err := ctx.Err(); err != nil && err != context.DeadlineExceeded {
		return err
	}
	return nil
}

// arrival tells who does not serve yet. A pod that nobody has to wait for counts as arrived.
func (c cephOSD) arrival(
	ctx context.Context, s *state, in activities.AwaitInput, pods map[string]*corev1.Pod,
) (activities.Arrival, error) {
	all := make([]*corev1.Pod, 0, len(pods))
	metadata := false
	for _, p := range pods {
		all = append(all, p)
		metadata = metadata || podspec.Known(p).ID == nil
	}
	now := &state{Set: s.Set, desired: s.desired, nodes: s.nodes}
	now.Classified = s.Classify(s.desired, all)
	if ready := c.readyInKubernetes(now, in); len(ready.Waiting) > 0 {
		return ready, nil // Ceph need not be asked
	}
	var err error
	if now.ceph, err = c.ceph.OSDs(ctx, in.Cluster, metadata); err != nil {
		return activities.Arrival{}, err
	}
	if now.ceph.Unavailable != "" {
		return activities.Arrival{Waiting: []activities.Superfluous{{Key: in.Keys[0], Why: now.ceph.Unavailable}}}, nil
	}
	now.identify(all)
	var a activities.Arrival
	wanted := sets.New(in.Keys...)
	for _, o := range now.osds() {
		switch {
		case !wanted.Has(o.Key) || o.Serves:
		case o.Excused:
			a.Excused = append(a.Excused, o.Name)
		case len(a.Waiting) < progressWaited:
			a.Waiting = append(a.Waiting, activities.Superfluous{Key: o.Key, Why: o.String() + " is not up in Ceph yet"})
		}
	}
	return a, nil
}

func (c cephOSD) readyInKubernetes(s *state, in activities.AwaitInput) (a activities.Arrival) {
	pods := map[string]*podspec.Pod{}
	for _, group := range [][]podspec.Pod{s.UpToDate, s.OutOfDate, s.Ready, s.Unready} {
		for i := range group {
			pods[group[i].OSD.Key()] = &group[i]
		}
	}
	wanted := sets.New(in.Keys...)
	for _, o := range s.desired {
		p := pods[o.Key()]
		switch {
		case !wanted.Has(o.Key()) || len(a.Waiting) == progressWaited:
		case p == nil:
			a.Waiting = append(a.Waiting,
				activities.Superfluous{Key: o.Key(), Why: cmp.Or(s.Hindered(o, s.nodes), s.ending(o), "it has no pod")})
		case !p.Ready && !p.Overridden:
			a.Waiting = append(a.Waiting, activities.Superfluous{Key: o.Key(), Why: "pod " + p.Name + " is not ready: " + p.Why})
		}
	}
	return a
}

func (s *state) ending(o podspec.OSD) string {
	for i := range s.Terminating {
		if p := &s.Terminating[i]; p.OSD.Key() == o.Key() {
			return "pod " + p.Name + " has not ended yet"
		}
	}
	return ""
}
