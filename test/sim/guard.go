package sim

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// This file is the guard of deletions (deploy/guard-deletions), as an API server answers with it that is late: each has
// a cache of its own of the budgets that are the guard's parameters.

// parameters are the guard's from a time on.
type parameters struct {
	since  time.Time
	covers []labels.Selector
}

// mostParameters is how many of them are remembered: more than a late API server is behind.
const mostParameters = 256

// noteParameters remembers what the guard would go by from now on. The mark that splits the OSDs between two budgets
// does not count for it.
func (w *World) noteParameters() {
	now := parameters{since: time.Now()}
	for _, b := range w.budgets {
		if b.Labels[kube.LabelGuards] == "" {
			continue
		}
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
	for i := len(w.params) - 1; i >= 0; i-- {
		if w.params[i].since.After(then) {
			continue
		}
		for _, selector := range w.params[i].covers {
			if selector.Matches(labels.Set(p.labels())) {
				return true
			}
		}
		return false
	}
	return true // it has not read them for the first time
}

// Deleters delete every OSD's pod, again and again, for a while, by an API server that is so late. It returns how many
// have gone so far.
func (w *World) Deleters(lasting, every, late time.Duration) (deleted func() int) {
	w.Tell("somebody deletes every OSD, all the time, for %s, by an API server that is %s late", lasting, late)
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
