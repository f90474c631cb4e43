package sim

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file holds the invariants. What somebody could not have known yet is not held against anybody: a budget is as of
// the last look, so what nobody announced is excused until it could show in the budget (Options.Reaction). That includes
// an OSD that was evicted at rest and whose next pod is ready at once: to the budget all is well then, before its data is.

// Unguarded says that nobody reacts for a while: the budgets stay as they are, and bad luck may come on top.
func (w *World) Unguarded(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unguarded = time.Now().Add(d)
}

// judge tells whether an eviction that was granted should have been (I1).
func (w *World) judge(o *osd, p *pod) {
	if !o.running || !o.up || p.state == storage.PodPending || w.guarding.IsZero() {
		return
	}
	b := w.budgets["lockkeeper"]
	resting := b != nil && b.spec.MinAvailable < budget.Everything
	if resting && time.Since(w.hurt) < w.opts.Reaction || time.Now().Before(w.unguarded) {
		return
	}
	for _, other := range w.osds {
		if other.zone != o.zone && other.evicted && (!other.running || !other.up) && w.missed(other) {
			w.violate("I1: osd.%d in %s is evicted while osd.%d in %s is away because of an eviction", o.id, o.zone, other.id, other.zone)
		}
	}
	if time.Since(w.crashed) < w.opts.Reaction {
		return
	}
	for _, g := range w.pgs {
		live := slices.DeleteFunc(w.live(g), func(id int) bool {
			q := w.podOf(id)
			return q == nil || !q.bound // terminating: as good as gone
		})
		left := slices.DeleteFunc(slices.Clone(live), func(id int) bool { return id == o.id })
		if len(live) >= minSize && len(left) < minSize {
			w.violate("I1: PG 1.%x becomes unavailable by the eviction of osd.%d", g.id, o.id)
			return
		}
	}
}

// judgeBudget tells whether the budget may say what it says (I3, I8).
func (w *World) judgeBudget(spec budget.Spec) {
	closed := spec.MinAvailable >= budget.Everything && len(spec.Except) == 0
	if closed || !w.quorate && time.Since(w.lost) > w.opts.Reaction {
		if !closed {
			w.violate("I3: the budget becomes %q without a quorum", describe(spec))
		}
		return
	}
	if len(spec.Except) == 0 {
		if spec.MinAvailable < budget.Everything && !w.clean() && time.Since(w.hurt) > w.opts.Reaction && kube.Settings(&w.policy.Spec).PGHealthCheckTimeout == 0 {
			w.violate("I3: at rest, though the data is not whole")
		}
		return
	}
	zone := spec.Except[0]
	if !w.mayOpen(zone) && time.Since(w.hurt) > w.opts.Reaction && time.Since(w.stirred) > w.opts.Reaction {
		w.violate("I8: zone %s is open for no reason", zone)
	}
	for _, o := range w.osds {
		if o.zone != zone && !o.up && time.Since(o.since) > w.opts.Reaction && w.missed(o) {
			w.violate("I1: zone %s opens while osd.%d in zone %s is down and missed", zone, o.id, o.zone)
		}
	}
}

// mayOpen: the zone has OSDs away, holds the lease, or one of its nodes is announced to go.
func (w *World) mayOpen(zone string) bool {
	if slices.ContainsFunc(w.memory.Lease.Holders, func(c lease.Claim) bool { return c.Domain.Name == zone }) {
		return true
	}
	for _, o := range w.osds {
		if p := w.podOf(o.id); o.zone == zone && (!o.up || !o.running || p == nil || p.state != storage.PodReady) {
			return true
		}
	}
	for _, n := range w.nodes {
		if n.zone == zone && (n.cordoned || n.tainted != "" || n.gone) {
			return true
		}
	}
	return false
}

// missed tells whether data has a copy less because an OSD is away.
func (w *World) missed(o *osd) bool {
	return slices.ContainsFunc(w.pgs, func(g *pg) bool { return slices.Contains(w.acting(g), o.id) })
}

// checkTruth is looked at every second.
func (w *World) checkTruth() {
	if w.policy == nil || w.guarding.IsZero() {
		return
	}
	settings := kube.Settings(&w.policy.Spec)
	if w.budgets["lockkeeper"] == nil && settings.ManagePodBudgets {
		w.violate("I2: no budget protects the OSDs")
		w.guarding = time.Time{}
	}
	for host, owner := range w.noout {
		if owner != byUs {
			continue
		}
		i := slices.IndexFunc(w.memory.Noout, func(n budget.Noout) bool { return n.Host == host })
		switch {
		case i < 0:
			w.violate("I4: nobody owns the noout on %s", host)
		case w.quorate && time.Since(w.memory.Noout[i].Expires) > 2*time.Minute:
			w.violate("I4: the noout on %s has expired %s ago", host, time.Since(w.memory.Noout[i].Expires))
		}
	}
}
