package sim

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// This file is the guard of deletions (deploy/guard-deletions), as two API servers answer with it: that of lockkeeper,
// and one that may be late. Each has a cache of its own of the budgets that are the guard's parameters.

// parameters are the guard's from a time on.
type parameters struct {
	since       time.Time
	covers      []labels.Selector
	generations map[string]int64 // of the budgets, by name
}

// apiServers are both of them. They implement kube.APIServers.
type apiServers struct{ w *World }

// Ask implements kube.APIServers.
func (a apiServers) Ask(ctx context.Context, _, _ string) (sights []kube.ServerSight, all bool) {
	w := a.w
	sights = []kube.ServerSight{{Server: "punctual"}}
	sights[0].Err = w.request(ctx, "ask API servers by which budgets they decide deletions", func() error {
		if w.guards {
			sights[0].Knows = w.asOf(time.Now()).generations
			sights = append(sights, kube.ServerSight{Server: "late", Knows: w.asOf(time.Now().Add(-w.lateBy)).generations})
		}
		return nil
	})
	return sights, sights[0].Err == nil
}

// asOf are the parameters that were in force then; none: they had not been read for the first time.
func (w *World) asOf(then time.Time) (p parameters) {
	for i := len(w.params) - 1; i >= 0; i-- {
		if !w.params[i].since.After(then) {
			return w.params[i]
		}
	}
	return p
}

// mostParameters is how many of them are remembered: more than a late API server is behind.
const mostParameters = 256

// noteParameters remembers what the guard would go by from now on. The mark that splits the OSDs between two budgets
// does not count for it.
func (w *World) noteParameters() {
	now := parameters{since: time.Now(), generations: map[string]int64{}}
	for _, b := range w.budgets {
		if b.Labels[kube.LabelGuards] == "" {
			continue
		}
		now.generations[b.Name] = b.Generation
		s := b.Spec.Selector.DeepCopy()
		s.MatchExpressions = nil
		for _, e := range b.Spec.Selector.MatchExpressions {
			if e.Key != storageview.MarkLabel {
				s.MatchExpressions = append(s.MatchExpressions, e)
			}
		}
		if selector, err := metav1.LabelSelectorAsSelector(s); err == nil {
			now.covers = append(now.covers, selector)
		}
	}
	w.params = append(w.params, now)
	w.params = w.params[max(0, len(w.params)-mostParameters):]
}

// guarded tells whether the guard refuses to delete a pod, for an API server that knows what was then.
func (w *World) guarded(p *pod, then time.Time) bool {
	as := w.asOf(then)
	return as.since.IsZero() || slices.ContainsFunc(as.covers, func(selector labels.Selector) bool {
		return selector.Matches(labels.Set(p.labels()))
	})
}

// Deleters delete every OSD's pod, again and again, for a while, by an API server that is so late. It returns how many
// have gone so far.
func (w *World) Deleters(lasting, every, late time.Duration) (deleted func() int) {
	w.Tell("somebody deletes every OSD, all the time, for %s, by an API server that is %s late", lasting, late)
	w.happens(func() { w.guards, w.lateBy = true, late })
	n := 0
	go func() {
		for end := time.Now().Add(lasting); time.Now().Before(end) && w.end.Err() == nil; time.Sleep(every) {
			w.happens(func() {
				for _, d := range w.workloads {
					p := w.podOf(d)
					if d.kind != "osd" || p == nil || p.leaving() || !p.runs || w.guarded(p, time.Now().Add(-late)) {
						continue
					}
					w.tell("somebody deletes %s", d.daemon())
					w.judge(p)
					w.remove(p)
					n++
				}
			})
		}
	}()
	return func() (now int) {
		w.happens(func() { now = n })
		return now
	}
}
