package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	lockkeeper "github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file holds the invariants of rollouts. Nobody grants what lockkeeper deletes itself, so it is judged more strictly than
// an eviction: whoever stops an OSD must know.

// judgeStop tells whether an OSD's pod may be stopped by lockkeeper: it holds the lease of its failure domain, noout is set
// on it, no other failure domain is away, and no placement group becomes unavailable.
func (w *World) judgeStop(p *pod) {
	if p.of.kind != "osd" {
		w.violate("I9: lockkeeper stops %s", p.of.daemon())
		return
	}
	if w.belated {
		return // it was right when it was sent; nobody can take a request back
	}
	o := w.osdOf(p.of)
	if !p.runs || !o.serves() || !o.up || !w.missed(o) {
		return // it takes nothing from anybody
	}
	defer func() { o.evicted = true }()
	claim := w.claimOn(o)
	if claim == nil {
		w.violate("I1: %s is stopped without the lease of %s", o.name(), o.zone)
		return
	}
	expired := w.policy != nil && time.Since(claim.Since.Time) > kube.Settings(&w.policy.Spec).MaintenanceTimeout
	if w.noout[o.name()] == "" && !expired && time.Since(w.edited) > w.opts.Reaction {
		w.violate("I4: %s is stopped without noout", o.name())
	}
	if time.Since(w.crashed) < w.opts.Reaction || w.hangsUnseen() || w.unknowable() {
		return
	}
	for _, other := range w.osds {
		if other.zone != o.zone && (!other.running || !other.up) && w.missed(other) {
			w.violate("I1: %s in %s is stopped while %s in %s is away", o.name(), o.zone, other.name(), other.zone)
		}
	}
	for _, g := range w.pgs {
		live := w.live(g)
		if left := slices.DeleteFunc(slices.Clone(live), func(id int) bool { return id == o.id }); len(live) >= minSize && len(left) < minSize {
			w.violate("I1: PG 1.%x becomes unavailable when %s is stopped", g.id, o.name())
			return
		}
	}
}

// claimOn is the claim under which an OSD may be stopped.
func (w *World) claimOn(o *osd) *lockkeeper.LeaseClaim {
	if w.policy == nil {
		return nil
	}
	for i, c := range w.policy.Status.Lease.Holders {
		if c.FailureDomain.Name == o.zone && slices.Contains(c.Daemons, o.name()) {
			return &w.policy.Status.Lease.Holders[i]
		}
	}
	return nil
}

// judgeStart: never two daemons on one device.
func (w *World) judgeStart(p *pod) {
	for _, x := range w.pods {
		if x != p && x.of == p.of && x.runs {
			w.violate("two daemons on the device of %s: in %s and in %s", p.of.daemon(), x.name, p.name)
		}
	}
}

// judgeProgress: what a rollout reports never goes back, as long as the template is the same and nobody else takes a pod.
func (w *World) judgeProgress(s *v1alpha1.CephOSDStatus) {
	var done, of int
	if _, err := fmt.Sscanf(s.Progress, "%d/%d", &done, &of); err != nil || s.TemplateHash == "" || s.OSDs.Total == 0 {
		return
	}
	key := fmt.Sprintf("%s %d", s.TemplateHash, of)
	maps.DeleteFunc(w.done, func(other string, _ int) bool { return other != key }) // one that is taken back begins anew
	if back := w.done[key] - done; back > 0 {
		if w.removals -= back; w.removals < 0 {
			w.violate("the progress of %s goes back from %d to %d of %d", s.TemplateHash, done+back, done, of)
			w.removals = 0
		}
	}
	w.done[key] = done
}

// Stopped lists the OSDs whose pods are not there or do not run.
func (w *World) Stopped() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.workloads {
		if d.kind != "osd" {
			continue
		}
		if p := w.podOf(d); p == nil || p.state != storage.PodReady {
			out = append(out, d.daemon())
		}
	}
	return out
}
