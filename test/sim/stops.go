package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	lockkeeper "github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file holds the invariants of rollouts. Nobody grants what lockkeeper deletes itself, so it is judged more
// strictly than an eviction: whoever stops an OSD must know.

// judgeStop tells whether an OSD's pod may be stopped by lockkeeper: it holds the lease of its failure domain, noout is
// set on it, no other failure domain is away, and no placement group becomes unavailable.
func (w *World) judgeStop(p *pod) {
	if p.of.kind != "osd" {
		w.violate("I9: lockkeeper stops %s", p.of.daemon())
		return
	}
	if w.belated || time.Since(w.retiring) < w.opts.Reaction {
		return // it was right when it was sent; nobody can take a request back
	}
	o := w.osdOf(p.of)
	if !p.runs || !o.serves() || !o.up || !w.missed(o) {
		return // it takes nothing from anybody
	}
	if time.Since(o.backIn) < w.opts.Reaction {
		return // nor did it when it was sent, and then a person marked it in
	}
	defer func() { o.evicted = true }()
	claim := w.claimOn(o)
	if claim == nil {
		w.violate("I1: %s is stopped without the lease of %s", o.name(), w.domainOf(o))
		return
	}
	if p.made != nil {
		w.judgeBatch(o, claim)
	}
	expired := w.policy != nil && time.Since(claim.Since.Time) > kube.Settings(&w.policy.Spec).MaintenanceTimeout
	if w.noout[o.name()] == "" && !expired && time.Since(w.edited) > w.opts.Reaction {
		w.violate("I4: %s is stopped without noout", o.name())
	}
	// A batch may begin a period after its lease was granted.
	if other := w.lifeless(w.domainOf(o), w.signOfLife()+w.reportPeriod()); other != nil {
		w.violate("I3: %s is stopped while %s in %s has been hanging for %s", o.name(), other.name(), w.domainOf(other),
			time.Since(other.hungAt))
	}
	if time.Since(w.crashed) < w.opts.Reaction || w.hangsUnseen() || w.unknowable() {
		return
	}
	for _, other := range w.osds {
		if w.domainOf(other) != w.domainOf(o) && (!other.running || !other.up) && w.missed(other) {
			w.violate("I1: %s in %s is stopped while %s in %s is away", o.name(), w.domainOf(o), other.name(), w.domainOf(other))
		}
	}
	for _, g := range w.pgs {
		live := w.live(g)
		if left := slices.DeleteFunc(slices.Clone(live), func(id int) bool { return id == o.id }); len(live) >= minSize &&
			len(left) < minSize {
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
		if w.domainNamed(c.FailureDomain.Name) == w.domainOf(o) && slices.Contains(c.Daemons, o.name()) {
			return &w.policy.Status.Lease.Holders[i]
		}
	}
	return nil
}

// judgeStart: never two daemons on one device, whichever of the devices of an OSD it is. As long as a pod whose
// container began is there, it may begin again, whether or not it runs at this moment. For what a person put there
// nobody else is to blame who could not know of it.
func (w *World) judgeStart(p *pod) {
	if p.of.kind != "osd" || p.persons() {
		return
	}
	for _, x := range w.pods {
		device := w.shares(p, x)
		if device == "" || !x.began {
			continue
		}
		if x.persons() && p.since.Sub(x.since) < w.slack() {
			continue
		}
		w.violate("two daemons on %s of %s: in %s and in %s", device, p.node, x.name, p.name)
	}
}

// noteHolders remembers until when somebody held the lease for these hosts and OSDs.
func (w *World) noteHolders() {
	for _, c := range w.policy.Status.Lease.Holders {
		for _, who := range append(slices.Concat(c.NooutHosts, c.Daemons), c.Node) {
			w.held[who] = time.Now()
		}
	}
}

// judgeNoout: what is set is on what a holder of the lease takes down, and a rollout takes down OSDs, not hosts.
func (w *World) judgeNoout(who string) {
	if w.belated || w.policy == nil {
		return
	}
	for _, c := range w.policy.Status.Lease.Holders {
		// A claim names hosts as they were called when it was made.
		if (slices.Contains(c.NooutHosts, who) || c.Node == who && len(c.NooutHosts) > 0) &&
			(c.Node != "" || slices.Contains(c.Daemons, who)) {
			return
		}
	}
	if time.Since(w.held[who]) < w.opts.Reaction { // its job ended while that was on its way
		return
	}
	w.violate("I4: noout is set on %s, which no holder of the lease takes down: %+v", who, w.policy.Status.Lease.Holders)
}

// judgeProgress: what a rollout reports never goes back, as long as the template and the OSDs are the same, and what is
// not known does not read as nothing. Whatever somebody else does to an OSD may cost one, once.
func (w *World) judgeProgress(s *v1alpha1.CephOSDStatus) {
	if w.belated || time.Since(w.edits.at) < w.slack() && w.cr.GetGeneration() == 1 {
		return // of the one before, which had the same name
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionUpToDate); c != nil &&
		c.Status == metav1.ConditionUnknown {
		return // Ceph did not answer: the counts are those of before, of another spec maybe
	}
	var done, of int
	if n, err := fmt.Sscanf(s.Progress, "%d/%d", &done, &of); s.Progress != "" && (err != nil || n != 2) {
		w.violate("the progress reads %q", s.Progress)
		return
	}
	if s.OSDs.Total == 0 {
		// Of a new template nothing is known as long as the storage cluster does not answer.
		if before := w.typedCephOSD().Status; before.TemplateHash == s.TemplateHash && before.OSDs.Total > 0 &&
			len(w.set().Spec.Storage) > 0 {
			w.violate("the progress reads %q after %q, and there are OSDs", s.Progress, before.Progress)
		}
		return
	}
	key := fmt.Sprintf("%s %d %d", s.TemplateHash, w.edits.devices[s.ObservedGeneration], of)
	maps.DeleteFunc(w.done, func(other string, _ int) bool { return other != key }) // one that is taken back begins anew
	for id, at := range w.disturbeds {
		// Whatever was seen of it then has been told by now.
		if o := w.osds[id]; o.up && o.serves() && time.Since(o.since) > forgotten && time.Since(at) > forgotten {
			delete(w.disturbeds, id)
		}
	}
	if most := w.madeFrom(s.TemplateHash) + len(w.disturbeds); done > most {
		w.violate("the progress of %s reads %q, and there are %d pods of it", s.TemplateHash, s.Progress, most)
		done = most
	}
	for back := w.done[key] - done; back > 0; back-- {
		if len(w.disturbeds) == 0 {
			w.violate("the progress of %s goes back from %d to %d of %d", s.TemplateHash, w.done[key], done, of)
			break
		}
		delete(w.disturbeds, slices.Sorted(maps.Keys(w.disturbeds))[0])
	}
	w.done[key] = done
}

// madeFrom counts the pods of a template.
func (w *World) madeFrom(hash string) (n int) {
	for _, p := range w.pods {
		if p.made != nil && p.made.Annotations[podspec.HashAnnotation] == hash {
			n++
		}
	}
	return n
}

// forgotten is how long a disturbance of an OSD that serves again excuses anything.
const forgotten = 10 * time.Minute

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
