package sim

import (
	"slices"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// This file judges the holds on Machines by what is true: who is released, who waits, and what is said of people.

// Hindered says that lockkeeper cannot be expected to release anything just now.
func (m *Machines) Hindered() { m.w.happens(m.hinder) }

func (m *Machines) hinder() {
	if now := time.Now(); now.After(m.hindrance) {
		m.hindrance = now
	}
}

// Forgotten says that the keeper was killed: it may have been asked for what it had not noted yet, and a fence asks
// again five minutes after it did, or after it has told the next keeper, which began some seconds later.
func (m *Machines) Forgotten() {
	m.w.happens(func() { m.hindrance = time.Now().Add(asksAgain + 30*time.Second - releasedWithin) })
}

// foreseeRelease: who has seen what a person does now gives up all holds, even if it is taken back a moment later.
func (w *World) foreseeRelease(within time.Duration) {
	if m := w.machines; m != nil {
		if until := time.Now().Add(within); until.After(m.foreseen) {
			m.foreseen = until
		}
	}
}

// judge judges a release by what is true: I7, and that it takes nothing while another failure domain is hurt.
func (m *Machines) judge(name string) {
	w := m.w
	hosts, serves := m.reliedOn(name), m.serves(name)
	if len(hosts) == 0 || !m.fenced() || w.older != nil || w.elsewhere != nil || time.Now().Before(m.foreseen) {
		// all holds go with the policy, and with one that gives way to another
		return
	}
	m.released[name] = true
	w.tell("the Machine of %s is released", name)
	for _, other := range w.names {
		if other != name && m.stillReleased(other) {
			w.violate("I7: the Machine of %s is released while that of %s is", name, other)
		}
	}
	m.judgeAsked(name, hosts)
	if serves == 0 || m.byHand[name] || time.Since(w.crashed) < w.opts.Reaction || time.Now().Before(w.unguarded) ||
		w.hangsUnseen() || w.unknowable() {
		return
	}
	for _, o := range w.osds {
		known := time.Since(o.since) > w.opts.Reaction && time.Since(w.lastInOut) > w.opts.Reaction
		if !hosts[w.domainOf(o)] && !o.up && known && w.missed(o) {
			w.violate("I1: the Machine of %s is released, %d of its OSDs serve, and %s in %s is down and missed", name, serves,
				o.name(), w.domainOf(o))
		}
	}
}

// stillReleased: one whose node is back was fenced, and is held again with the first of its daemons that serves.
func (m *Machines) stillReleased(name string) bool {
	n := m.w.nodes[name]
	back := n.ready && !n.gone && !n.cut && !n.rebooting && m.serves(name) == 0
	return m.released[name] && !back && len(m.reliedOn(name)) > 0
}

// judgeAsked: what serves goes when its failure domain is open for it, and not because its node looks dead; and while
// nobody knows what serves nothing goes.
func (m *Machines) judgeAsked(name string, hosts map[string]bool) {
	w := m.w
	settled := !w.guarding.IsZero() && time.Since(w.guarding) > w.opts.Reaction &&
		time.Since(w.edited) > w.opts.Reaction && time.Now().After(w.unguarded)
	if m.byHand[name] || !settled {
		return
	}
	if !w.quorate() && w.silentFor() > w.opts.Reaction {
		w.violate("I3: the Machine of %s is released without a quorum", name)
	}
	for zone := range hosts {
		if m.isOpen(zone) || m.goesAlone(name, zone) {
			return
		}
	}
	managed := kube.Settings(&w.policy.Spec).ManagePodBudgets
	i := slices.IndexFunc(w.osds, func(o *osd) bool {
		return o.host == name && o.up && o.serves() && time.Since(o.since) > w.opts.Reaction
	})
	if i >= 0 && managed && !w.unknowable() {
		w.violate("I7: the Machine of %s is released, %s on it serves, and its failure domain is not open", name,
			w.osds[i].name())
	}
}

// goesAlone tells whether the fence of a node holds the lease of its failure domain, and whatever serves there is to
// end anyway: then nothing need be open for it.
func (m *Machines) goesAlone(name, zone string) bool {
	w := m.w
	holds := slices.ContainsFunc(w.policy.Status.Lease.Holders, func(c v1alpha1.LeaseClaim) bool {
		return c.WorkflowID == "fence/"+name && w.domainNamed(c.FailureDomain.Name) == zone
	})
	return holds && !slices.ContainsFunc(w.pods, func(p *pod) bool {
		takes := p.of.kind == "mon" || p.of.kind == "osd" && w.osdOf(p.of).up // one whose disk is broken serves nothing
		return p.node == name && p.bound && !p.leaving() && takes
	})
}

// isOpen tells whether a failure domain is, or was until a moment ago, when an alarm may have closed it.
func (m *Machines) isOpen(zone string) bool {
	if at, was := m.closedAt[zone]; was && time.Since(at) < m.w.opts.Reaction {
		return true
	}
	return slices.Contains(m.w.openZones(), zone)
}

// openZones are the failure domains that our budgets leave open.
func (w *World) openZones() (zones []string) {
	unproved, proved := w.osdBudgets()
	for _, b := range []*policyv1.PodDisruptionBudget{unproved, proved} {
		if b == nil || !isOSDs(b) {
			continue
		}
		for _, name := range opened(b) {
			zones = append(zones, w.domainNamed(name))
		}
	}
	return zones
}

// noteClosing takes note of what was open before a budget was written.
func (w *World) noteClosing(had *policyv1.PodDisruptionBudget) {
	if w.machines == nil || had == nil || !isOSDs(had) {
		return
	}
	for _, name := range opened(had) {
		w.machines.closedAt[w.domainNamed(name)] = time.Now()
	}
}

// reliedOn are the failure domains of those of a node's OSDs that data is on. Without the others it is whole: one that
// is down, and that nobody misses, may run again any moment. One that has only just come up counts when a look could
// have seen it.
func (m *Machines) reliedOn(name string) map[string]bool {
	w, domains := m.w, map[string]bool{}
	for _, o := range w.osds {
		serves := o.up && o.serves() && time.Since(o.since) > w.opts.Reaction
		missed := w.missed(o) && (!o.up || time.Since(o.since) > w.opts.Reaction)
		if o.host == name && (serves || missed) {
			domains[w.domainOf(o)] = true
		}
	}
	return domains
}

func (m *Machines) serves(name string) (n int) {
	for _, o := range m.w.osds {
		if o.host == name && o.serves() {
			n++
		}
	}
	return n
}

// judgeWaits: a node whose fence costs nothing is released in bounded time (I8).
func (m *Machines) judgeWaits() {
	w := m.w
	if !m.fenced() {
		w.foreseeRelease(givesUpHolds)
	}
	if w.older != nil || w.elsewhere != nil {
		w.foreseeRelease(w.opts.Reaction / 4)
	}
	able := m.fenced() && w.quorate() && time.Now().After(w.unguarded) && w.older == nil && w.elsewhere == nil
	for _, name := range w.names {
		able = able && !m.goes(name)
	}
	if !able {
		m.hinder()
	}
	for _, name := range w.names {
		if !m.free(name) {
			delete(m.costless, name)
			continue
		}
		if m.costless[name].IsZero() {
			m.costless[name] = time.Now()
		}
		within := releasedWithin + w.opts.Reaction
		if time.Since(m.costless[name]) > within && time.Since(m.hindrance) > within {
			w.violate("I8: the Machine of %s is held, although its fence costs nothing", name)
		}
	}
}

// goes tells whether the Machine of a node was let go, or is being fenced: nobody else's goes meanwhile, not even where
// nothing relies on either.
func (m *Machines) goes(name string) bool {
	lost := !m.held[name] && (!m.lostAt[name].IsZero() || m.byHand[name])
	return m.released[name] || m.starting[name] || m.away[name] || lost
}

// free tells whether a node is to be fenced and held, and nothing on it serves, by Ceph's map.
func (m *Machines) free(name string) bool {
	why, _ := m.patient(name).Why()
	if why == fencing.WhyRecovered || !m.held[name] || m.away[name] {
		return false
	}
	return !slices.ContainsFunc(m.w.osds, func(o *osd) bool { return o.host == name && (o.up || o.running) }) &&
		!slices.ContainsFunc(m.w.mons, func(x *mon) bool { return x.host == name && (x.in || x.running) })
}

// blames judges what lockkeeper says of somebody who took a hold away (I11).
func (m *Machines) blames(message string) {
	for _, name := range m.w.names {
		if strings.Contains(message, "Machine "+machineNames+name+" ") && !m.taken[name] {
			m.w.violate("I11: nobody has touched the hold of %s: %s", name, message)
		}
	}
}

// Quorate tells whether enough mons run for a quorum.
func (m *Machines) Quorate() (is bool) {
	m.w.happens(func() { is = m.w.enoughMons() })
	return is
}

// Unrest is what has not come to an end about Machines.
func (m *Machines) Unrest() (out []string) {
	m.w.happens(func() {
		for _, name := range m.w.names {
			switch {
			case m.w.nodes[name].cut:
				out = append(out, name+" is cut off")
			case !m.lostAt[name].IsZero():
				out = append(out, name+" has no power")
			case m.away[name]:
				out = append(out, name+" has no Machine")
			case !m.deleting[name].IsZero():
				out = append(out, "the Machine of "+name+" is being deleted")
			case m.w.nodes[name].rebooting:
				out = append(out, name+" starts")
			case m.fenced() && !m.held[name] && m.serves(name) > 0:
				out = append(out, "nobody holds the Machine of "+name)
			case m.w.policy == nil && m.held[name]:
				out = append(out, "the Machine of "+name+" is held, and there is no policy")
			}
		}
		out = append(out, m.budget.unrest(m)...)
	})
	return out
}
