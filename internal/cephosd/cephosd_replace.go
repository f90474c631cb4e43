package cephosd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

func (c cephOSD) running(ctx context.Context, in activities.Replacement) (standing, storage.Answer, error) {
	s, err := c.now(ctx)
	if errors.Is(err, errMoved) || err == nil && s.Hash != in.Template {
		return standing{}, storage.Answer{Reason: errMoved.Error()}, nil
	}
	if err != nil {
		return standing{}, storage.Answer{}, err
	}
	old := s.old()
	var out []rollout.OSD
	for _, o := range in.OSDs {
		if old[o.Key] != nil {
			out = append(out, o)
		}
	}
	return standing{running: out, whole: s.holding(nil).whole}, storage.Answer{OK: true}, nil
}

// old are the pods that are to be replaced, by the key of their OSD.
func (s *state) old() map[string]*podspec.Pod {
	out := map[string]*podspec.Pod{}
	for i := range s.OutOfDate {
		out[s.OutOfDate[i].OSD.Key()] = &s.OutOfDate[i]
	}
	for i := range s.Invalid {
		if p := &s.Invalid[i]; p.Serving {
			out[p.OSD.Key()] = p
		}
	}
	return out
}

// successor is the pod that an OSD is to have.
type successor struct {
	osd podspec.OSD
	pod *corev1.Pod
}

// replace deletes the old pods, sees each gone, and makes its successor: two daemons on one device destroy it. An OSD
// that waits for a device which is not given back in this batch is left as it is.
func (c cephOSD) replace(ctx context.Context, in activities.Replacement) error {
	s, err := c.now(ctx)
	if errors.Is(err, errMoved) || err == nil && s.Hash != in.Template {
		return nil
	}
	if err != nil {
		return err
	}
	old := s.old()
	desired := map[string]podspec.OSD{}
	for _, o := range s.desired {
		desired[o.Key()] = o
	}
	var goes []*corev1.Pod
	comes := map[string]successor{}
	for _, o := range s.holding(nil).whole(in.OSDs) {
		want, ok := desired[o.Key]
		if !ok {
			continue
		}
		comes[o.Key] = successor{want, s.rendered(want)}
		if p := old[o.Key]; p != nil {
			goes = append(goes, p.Pod)
		}
	}
	// To look took a while, and what is deleted is made anew from what was seen then.
	if set, found, err := c.spec(ctx); err != nil || !found || set.Hash != in.Template {
		return err
	}
	if err := c.deleteAll(ctx, goes); err != nil {
		return err
	}
	return c.succeed(ctx, s, comes)
}

func (c cephOSD) deleteAll(ctx context.Context, pods []*corev1.Pod) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, p := range pods {
		g.Go(func() error {
			if err := c.delete(ctx, p); err != nil {
				return fmt.Errorf("delete pod %s: %w", p.Name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// succeed makes each successor when nobody has any of its OSD's devices any more, data, DB or WAL: the old pod may have
// been evicted by somebody else just before, and still be ending, and two OSDs may exchange their DBs. On a node that
// is being emptied it is not made at all; it comes back with the node.
func (c cephOSD) succeed(ctx context.Context, s *state, comes map[string]successor) error {
	const listAnew = 16
	still, since := map[string]types.UID{}, 0
	return poll(ctx, func() (bool, error) {
		// A list of all pods is much to ask for, so it is asked for when one of those that were waited for has gone, and
		// seldom otherwise: one may let go of a device in another way, too.
		if since++; since < listAnew {
			if gone, err := c.anyGone(ctx, still); err != nil || !gone {
				return false, err
			}
		}
		since = 0
		pods, err := c.pods(ctx)
		if err != nil {
			return false, err
		}
		var free []successor
		free, still = unoccupied(s.desired, comes, pods)
		if err := c.makeAll(ctx, s, free); err != nil {
			return false, err
		}
		for _, x := range free {
			delete(comes, x.osd.Key())
		}
		return len(comes) == 0, nil
	})
}

// anyGone tells whether one of the pods is not there any more, or there is none to look for.
func (c cephOSD) anyGone(ctx context.Context, pods map[string]types.UID) (bool, error) {
	for name, uid := range pods {
		p, err := c.typed.CoreV1().Pods(c.ref.Namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return true, nil
		case err != nil:
			return false, err
		case p.UID != uid || hasEnded(p):
			return true, nil
		}
	}
	return len(pods) == 0, nil
}

// unoccupied tells which successors may start now, and for which pods the others wait.
func unoccupied(
	desired []podspec.OSD, comes map[string]successor, pods []*corev1.Pod,
) (free []successor, still map[string]types.UID) {
	identified := podspec.Identify(desired, pods)
	wanted := make([]podspec.OSD, 0, len(comes))
	for _, x := range comes {
		wanted = append(wanted, x.osd)
	}
	occupied := map[string][]*corev1.Pod{}
	for key, held := range podspec.Holders(wanted, identified, pods) {
		for _, h := range held {
			occupied[key] = append(occupied[key], h.Pod)
		}
	}
	for _, p := range pods {
		o, known := identified[p.Name]
		x, mine := comes[o.Key()]
		if known && mine && (p.DeletionTimestamp != nil || p.Name != x.pod.Name && !hasEnded(p)) {
			occupied[o.Key()] = append(occupied[o.Key()], p)
		}
	}
	still = map[string]types.UID{}
	for key, x := range comes {
		if len(occupied[key]) == 0 {
			free = append(free, x)
		}
		for _, p := range occupied[key] {
			still[p.Name] = p.UID
		}
	}
	return free, still
}

func hasEnded(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && (p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded)
}

// makeAll makes successors. One that the API server rejects, or whose name somebody else has, is missing from now on:
// the next look finds it, and says why.
func (c cephOSD) makeAll(ctx context.Context, s *state, free []successor) error {
	if len(free) == 0 {
		return nil
	}
	nodes, err := c.nodes(ctx)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, x := range free {
		if nodes.Away(x.osd.Host) != "" {
			continue
		}
		g.Go(func() error {
			_, err := s.judgement(c.make(ctx, x.pod))
			return err
		})
	}
	return g.Wait()
}

// poll asks again and again until the answer is yes.
func poll(ctx context.Context, done func() (bool, error)) error {
	const pauseMin, pauseMax = 50 * time.Millisecond, time.Second
	for pause := pauseMin; ; pause = min(pause*3/2, pauseMax) {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}
