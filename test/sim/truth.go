package sim

import (
	"slices"
	"time"

	policyv1 "k8s.io/api/policy/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file holds the invariants. What somebody could not have known yet is not held against anybody: a budget is as of
// the last look, so what nobody announced is excused until it could show in the budget (Options.Reaction). What was
// evicted is announced: two OSDs of different zones that are away because of evictions are excused by nothing but a
// person who changed the budgets, whoever is dead or slow (I10).

// judge tells whether an eviction that was granted should have been (I1, I5).
func (w *World) judge(p *pod) {
	if p.state == storage.PodPending {
		return
	}
	if w.guarding.IsZero() {
		if p.of.kind == "osd" && len(w.over(p)) == 0 {
			w.crashed = time.Now() // nothing holds it back, so it comes as a surprise
		}
		return
	}
	switch p.of.kind {
	case "osd":
		w.judgeOSD(w.osdOf(p.of))
	case "mon":
		w.judgeMon(w.monOf(p.of))
	case "mgr":
		w.judgeManager(p)
	}
}

// judgeManager: the only manager goes when another node can take it, or when it alone keeps its node from becoming
// empty (I8). Without a manager nobody knows whether the data is whole, so nothing opens, and the node that it waits
// for is not emptied. Where it runs only the watcher tells.
func (w *World) judgeManager(p *pod) {
	n := w.nodes[p.node]
	if !writer(w.daemonBudget()).ours() || time.Since(w.guarding) < w.opts.Reaction || time.Now().Before(w.tampered) ||
		time.Now().Before(w.unguarded) || w.blind || time.Since(w.sighted) < w.opts.Reaction {
		return
	}
	for _, d := range w.workloads {
		if q := w.podOf(d); d.kind == "osd" && d.pinned == p.node && q != nil && q.bound {
			continue
		} else if d.kind == "osd" && d.pinned == p.node {
			return // its node is being emptied
		}
	}
	// The budget may still be as it was for the node before, or for the time before.
	leaves := n.cordonedAt
	if !n.taintedAt.IsZero() && n.taintedAt.Before(leaves) {
		leaves = n.taintedAt // it was let go since then
	}
	before := leaves.Before(w.homeless) || time.Since(p.started) < w.opts.Reaction
	known := !before || time.Since(w.homeless) >= w.opts.Reaction
	if !w.homeless.IsZero() && time.Now().After(w.homeless) && known {
		w.violate("I8: the only manager is evicted from %s, and no node could take it since %s ago", p.node,
			time.Since(w.homeless))
	}
}

// seekHomes notes since when no node could take another pod.
func (w *World) seekHomes() {
	for _, n := range w.nodes {
		if n.schedulable() {
			w.homeless = time.Time{}
			return
		}
	}
	if w.homeless.IsZero() {
		w.homeless = time.Now()
	}
}

// judgeMon: a majority stays (I5).
func (w *World) judgeMon(m *mon) {
	// one budget goes after the other
	unmanaged := w.policy == nil || w.policy.DeletionTimestamp != nil || !kube.Settings(&w.policy.Spec).ManagePodBudgets
	// what is being given up takes a while, too; and who is in charge instead guards well
	unmanaged = unmanaged || time.Since(w.edited) < w.opts.Reaction || w.older != nil
	unmanaged = unmanaged || time.Since(w.guarding) < w.opts.Reaction // that of the mons is made last
	if unmanaged || !m.in || !m.running || time.Since(w.crashed) < w.opts.Reaction || w.unknowable() ||
		time.Now().Before(w.unguarded) {
		return
	}
	now := 0
	for _, x := range w.mons {
		if p := w.podOf(w.workload("mon", x.name)); x.in && x.running && p != nil && p.bound {
			now++
		}
	}
	if now >= w.majority() && now-1 < w.majority() {
		w.violate("I5: mon.%s is evicted, which leaves %d of %d mons in quorum", m.name, now-1, len(w.mons))
	}
}

func (w *World) judgeOSD(o *osd) {
	if !o.serves() || !o.up {
		return
	}
	defer func() { o.evicted = true }()
	b := w.daemonBudget()
	if !writer(b).ours() {
		w.crashed = time.Now() // no budget holds it back, so it comes as a surprise to whoever has just looked
		return
	}
	if time.Now().Before(w.tampered) {
		return
	}
	for _, other := range w.osds {
		// One that was out, and that nobody missed, comes as a surprise when a person marks it in.
		known := time.Since(other.backIn) >= w.opts.Reaction
		if w.domainOf(other) != w.domainOf(o) && other.evicted && (!other.running || !other.up) && w.missed(other) && known {
			w.violate("I10: %s in %s is evicted while %s in %s is away because of an eviction", o.name(), w.domainOf(o),
				other.name(), w.domainOf(other))
		}
	}
	if resting(b) && (time.Since(w.hurt) < w.opts.Reaction || time.Now().Before(w.unguarded)) {
		return
	}
	if time.Since(w.crashed) < w.opts.Reaction || time.Now().Before(w.unguarded) || w.hangsUnseen() || w.unknowable() {
		return
	}
	w.judgeBeside(o)
	if resting(b) && w.healthIgnored() {
		return
	}
	for _, g := range w.pgs {
		live := slices.DeleteFunc(w.live(g), func(id int) bool {
			q := w.podOf(w.workload("osd", w.osds[id].workload().id))
			return q == nil && !w.servesUnheard(w.osds[id]) || q != nil && !q.bound // terminating: as good as gone
		})
		left := slices.DeleteFunc(slices.Clone(live), func(id int) bool { return id == o.id })
		if len(live) >= minSize && len(left) < minSize {
			w.violate("I1: PG 1.%x becomes unavailable by the eviction of %s", g.id, o.name())
			return
		}
	}
}

// healthIgnored: the data has not been whole for so long that the policy has whoever is at rest ignore it. Where
// nothing recovers, because a person has switched it off, that lasts.
func (w *World) healthIgnored() bool {
	if w.policy == nil {
		return false
	}
	timeout := kube.Settings(&w.policy.Spec).PGHealthCheckTimeout
	return timeout > 0 && !w.clean() && time.Since(w.hurt) >= timeout
}

// unknowable: the mons could not take in what happened, and have not been silent for so long that somebody should have
// noticed. For as long as their lease lasts they tell what was.
func (w *World) unknowable() bool {
	if w.lost.IsZero() {
		return time.Since(w.regained) < w.opts.Reaction && w.silence < w.opts.Reaction
	}
	return w.silentFor() < w.opts.Reaction
}

// silentFor is how long the mons have not answered.
func (w *World) silentFor() time.Duration {
	switch {
	case !w.hushed.IsZero():
		return time.Since(w.hushed)
	case w.readable.After(w.lost):
		return time.Since(w.readable)
	default:
		return time.Since(w.lost)
	}
}

// hangsUnseen: an OSD hangs that is up in the map, and nobody asks while nothing is to open.
func (w *World) hangsUnseen() bool {
	return slices.ContainsFunc(w.osds, func(o *osd) bool { return o.hung && o.up })
}

// signOfLife is for how long an OSD may have been hanging when something opens: it reported right before, and the
// question was asked right before that. From the answer to the opening it takes a look, a pass that closes, and one
// that looks again and opens: three times as many requests as a reaction.
func (w *World) signOfLife() time.Duration {
	return 2*w.reportPeriod() + 3*(w.opts.Reaction-defaultReaction)
}

// lifeless finds an OSD outside a zone that has been hanging for longer than that: somebody who asked would know.
// Without a manager nobody can ask.
func (w *World) lifeless(zone string, longer time.Duration) *osd {
	for _, o := range w.osds {
		if w.domainOf(o) != zone && o.hung && o.up && time.Since(o.hungAt) > longer && w.missed(o) && w.manager.alive {
			return o
		}
	}
	return nil
}

// cutOff finds an OSD outside a zone that has lost the monitors for so long that whoever asks them twice knows.
func (w *World) cutOff(zone string) *osd {
	for _, o := range w.osds {
		if w.domainOf(o) != zone && o.serves() && o.up && !o.cutAt.IsZero() &&
			time.Since(o.cutAt) > turning+w.signOfLife() {
			return o
		}
	}
	return nil
}

// judgeBeside: nobody goes while an OSD elsewhere has lost the monitors, and somebody has asked them ever since, for so
// long that he knows and has closed what was open (I3).
func (w *World) judgeBeside(o *osd) {
	other := w.cutOff(w.domainOf(o))
	if other == nil || !w.watching.goesOn() {
		return
	}
	if known := latest(other.cutAt, w.watching.since); time.Since(known) > turning+w.signOfLife()+w.opts.Reaction {
		w.violate("I3: %s is evicted while %s in %s has had no session with a monitor for %s", o.name(), other.name(),
			w.domainOf(other), time.Since(other.cutAt))
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// turning is how long an OSD may take to turn to another monitor, and how often who asks is told names.
const turning = 10 * time.Second

// judgeOpening: nothing opens while an OSD elsewhere gives no sign of life (I3).
func (w *World) judgeOpening(had *policyv1.PodDisruptionBudget, zone string) {
	if had != nil && len(opened(had)) > 0 && w.domainNamed(opened(had)[0]) == zone {
		return
	}
	if o := w.lifeless(zone, w.signOfLife()); o != nil && !w.belated {
		w.violate("I3: %s opens while %s in %s has been hanging for %s", zone, o.name(), w.domainOf(o), time.Since(o.hungAt))
	}
	if o := w.cutOff(zone); o != nil && !w.belated {
		w.violate("I3: %s opens while %s in %s has had no session with a monitor for %s", zone, o.name(), w.domainOf(o),
			time.Since(o.cutAt))
	}
}

func writer(b *policyv1.PodDisruptionBudget) owner {
	if b == nil || len(b.ManagedFields) == 0 {
		return ""
	}
	return owner(b.ManagedFields[0].Manager)
}

// judgeWriting tells whether a budget may say what it says (I3, I8), and whether it was anybody's to write (I9).
func (w *World) judgeWriting(had, b *policyv1.PodDisruptionBudget, who owner) {
	if had != nil && who == byUs && had.Labels[kube.LabelManagedBy] != kube.FieldOwner {
		w.violate("I9: lockkeeper changes the budget %s, which is not its own", b.Name)
	}
	if who == byWatcher && (resting(b) || len(opened(b)) > 0) {
		w.violate("I3: the watcher opens the %s budget", daemonOf(b))
	}
	if who == byUs && daemonOf(b) == kube.DaemonMon {
		w.judgeLettingGo(had, b)
	}
	if who != byUs || !isOSDs(b) {
		return
	}
	if unproved, proved := w.osdBudgets(); w.guarding.IsZero() && unproved != nil && proved != nil {
		w.guarding = time.Now()
	}
	closed := !resting(b) && len(opened(b)) == 0
	if closed || w.policy == nil {
		return
	}
	if had != nil && len(opened(had)) > 0 && !resting(b) && slices.Equal(opened(had), opened(b)) {
		return // nobody more may go than before
	}
	if !w.quorate() && w.silentFor() > w.opts.Reaction {
		w.violate("I3: the budget becomes %q without a quorum", describe(b))
		return
	}
	if len(opened(b)) == 0 {
		if !w.clean() && time.Since(w.hurt) > w.opts.Reaction && !w.hangsUnseen() && !w.unknowable() &&
			kube.Settings(&w.policy.Spec).PGHealthCheckTimeout == 0 {
			w.violate("I3: at rest, though the data is not whole")
		}
		return
	}
	zone := w.domainNamed(opened(b)[0])
	w.judgeOpening(had, zone)
	if !w.mayOpen(zone) && time.Since(w.hurt) > w.opts.Reaction && time.Since(w.stirred) > w.opts.Reaction {
		w.violate("I8: %s is open for no reason", zone)
	}
	for _, o := range w.osds {
		// One that a person has just taken in again was not missed a moment ago.
		known := time.Since(o.since) > w.opts.Reaction && time.Since(w.lastInOut) > w.opts.Reaction
		if w.domainOf(o) != zone && !o.up && known && w.missed(o) {
			w.violate("I1: %s opens while %s in %s is down and missed", zone, o.name(), w.domainOf(o))
		}
	}
}

// mayOpen: the zone has OSDs or mons away, holds the lease, or one of its nodes is announced to go.
func (w *World) mayOpen(zone string) bool {
	if slices.ContainsFunc(w.policy.Status.Lease.Holders,
		func(c v1alpha1.LeaseClaim) bool { return w.domainNamed(c.FailureDomain.Name) == zone }) {
		return true
	}
	for _, o := range w.osds {
		if w.domainOf(o) == zone && (!o.up || !o.serves()) {
			return true
		}
	}
	for _, d := range w.workloads {
		n := w.nodes[d.pinned]
		if p := w.podOf(d); n != nil && w.domainOfNode(n) == zone && (p == nil || p.state != storage.PodReady) {
			return true
		}
	}
	for _, n := range w.nodes {
		if w.domainOfNode(n) == zone && (n.cordoned || n.tainted != "" || n.gone) {
			return true
		}
	}
	return slices.ContainsFunc(w.mons,
		func(m *mon) bool { return w.domainOfNode(w.nodes[m.host]) == zone && (!m.running || !m.in) })
}

// missed tells whether data has a copy less because an OSD is away.
func (w *World) missed(o *osd) bool {
	return slices.ContainsFunc(w.pgs, func(g *pg) bool { return slices.Contains(g.acting, o.id) })
}

// checkTruth is looked at after every step.
func (w *World) checkTruth() {
	w.seekHomes()
	if w.policy == nil || w.guarding.IsZero() || w.policy.DeletionTimestamp != nil {
		return
	}
	settings := kube.Settings(&w.policy.Spec)
	unproved, proved := w.osdBudgets()
	if unproved == nil || proved == nil {
		if settings.ManagePodBudgets {
			w.violate("I2: no budget protects the OSDs")
		}
		w.guarding = time.Time{}
	}
	if writer(unproved).ours() && writer(proved).ours() {
		w.checkCover()
	}
	for host, who := range w.noout {
		if who == byUs {
			w.checkNoout(host)
		}
	}
}

// checkCover: each OSD is under one budget, but for those of one zone (I1, I2). While budgets pass from one policy to
// another it may be under two for a moment, and no eviction of it succeeds, but never under none.
func (w *World) checkCover() {
	most := 1
	for _, b := range w.budgets {
		if b.Labels[kube.LabelManagedBy] == kube.FieldOwner && b.Labels[kube.LabelPolicy] != w.policy.Name {
			most = 2
		}
	}
	open := ""
	for _, p := range w.pods {
		if p.of.kind != "osd" || p.leaving() {
			continue
		}
		ours := 0
		for _, b := range w.over(p) {
			if b.Labels[kube.LabelManagedBy] == kube.FieldOwner {
				ours++
			}
		}
		switch {
		case ours > most:
			w.violate("I2: %s is under two budgets", p.name)
		case ours == 0 && open != "" && open != w.domainOf(w.osdOf(p.of)):
			w.violate("I1: %s and %s are both open", open, w.domainOf(w.osdOf(p.of)))
		case ours == 0:
			open = w.domainOf(w.osdOf(p.of))
		}
	}
}

// judgeMark: a mark names the very pod, the pod's OSD serves and all data is whole, and a budget that counts it was
// there before.
func (w *World) judgeMark(p *pod, mark string, who owner) {
	x := p.object()
	had := x.Labels[storageview.MarkLabel]
	switch {
	case who != byUs || mark == had || p.of.kind != "osd":
		return
	case mark == "":
		if resting(w.daemonBudget()) && !time.Now().Before(w.tampered) {
			w.violate("I10: the mark of %s is taken away while the budget counts it", p.name)
		}
		return
	}
	o := w.osdOf(p.of)
	if pod := kube.StoragePod(&x, "ceph-osd-id"); mark != pod.Mark() {
		w.violate("I10: the mark of %s names another pod: %s", p.name, mark)
	}
	timeout := w.policy != nil && kube.Settings(&w.policy.Spec).PGHealthCheckTimeout > 0
	known := time.Since(w.hurt) > w.opts.Reaction && !w.hangsUnseen()
	if (!o.serves() || !o.up || !w.clean()) && !timeout && known {
		w.violate("I10: %s is marked as proved, though its data is not whole", p.name)
	}
	w.tell("lockkeeper marks %s", p.name)
}

// unmarked are the pods that should have a mark at rest.
func (w *World) unmarked() (out []string) {
	if w.policy == nil || kube.Settings(&w.policy.Spec).AtRest == storage.AtRestNone || !w.atRest() {
		return nil
	}
	for _, p := range w.pods {
		if p.of.kind != "osd" || p.state != storage.PodReady || !w.osdOf(p.of).up {
			continue
		}
		x := p.shared()
		if pod := kube.StoragePod(&x, "ceph-osd-id"); !pod.Proved() {
			out = append(out, p.name+" is not marked")
		}
	}
	return out
}

// atRest tells whether the budgets are as at rest.
func (w *World) atRest() bool {
	unproved, proved := w.osdBudgets()
	if unproved == nil || proved == nil || len(opened(unproved)) > 0 {
		return false
	}
	none := w.policy != nil && kube.Settings(&w.policy.Spec).AtRest == storage.AtRestNone
	return resting(proved) || none && proved.Spec.MaxUnavailable != nil
}

// overdue is how long a noout may outlast its expiry, while there is a quorum that could unset it.
const overdue = 2 * time.Minute

func (w *World) checkNoout(host string) {
	record := w.recordOn(host)
	switch {
	case record == nil:
		w.violate("I4: nobody owns the noout on %s", host)
	case record.Expires.IsZero():
		w.violate("I4: the noout on %s has no end", host)
	case w.quorate() && time.Now().After(w.unguarded) && time.Since(w.edited) > overdue &&
		time.Since(w.regained) > overdue && time.Since(record.Expires.Time) > overdue:
		w.violate("I4: the noout on %s has outlasted its expiry", host)
	case record.Expires.Sub(record.Since.Time) > kube.Settings(&w.policy.Spec).MaintenanceTimeout+time.Minute &&
		w.policy.Generation == 1:
		w.violate("I4: the noout on %s lasts longer than osdMaintenanceTimeout", host)
	}
}
