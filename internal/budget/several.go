package budget

import (
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is about nodes with daemons in several failure domains. There are such nodes where each daemon is a failure
// domain of its own. The claim of a job that empties a node names the first of them, and stands for all.
//
// If the storage cluster says that all daemons of the node may stop at once, they are one failure domain for as long as
// the claim holds the lease. Otherwise they go one by one: a domain opens only when the data is whole without those
// that went before.

// severalDomains returns the node of a claim if the claim stands for several failure domains.
func (in Input) severalDomains(c lease.Claim) (storage.Node, bool) {
	if c.Node == "" || len(c.Daemons) > 0 {
		return storage.Node{}, false
	}
	n, ok := in.View.Node(c.Node)
	// Of a node that was not asked about, or by an older version, it is not known how its daemons may stop.
	return n, ok && n.OKToStop != nil && len(n.Domains) > 1 && slices.Contains(n.Domains, c.Domain.Name)
}

// Stops answers how the daemons of a claim's node may stop. It is asked at the grant, and again while the claim holds
// the lease: data moves, and with the last daemon left there is nothing that could stop beside it.
func Stops(in Input, c lease.Claim) lease.Stops {
	n, several := in.severalDomains(c)
	switch a := n.OKToStop; {
	case !several:
		return c.Stops
	case fresh(in) && !in.Health.Moving && a.OK && len(in.asOne(c).View.Domains) < len(in.View.Domains):
		return lease.StopTogether
	case c.Stops == lease.StopTogether && (!Clean(in) || a.Silence):
		return c.Stops // what has begun goes on: the rest of a node may be needed while some of it is away
	default:
		return lease.StopOneByOne
	}
}

// asOne is the input with all failure domains of a claim's node as one, under the name of the claim's.
func (in Input) asOne(c lease.Claim) Input {
	n, several := in.severalDomains(c)
	if !several {
		return in
	}
	one := storage.Domain{Name: c.Domain.Name, OKToStop: n.OKToStop}
	var domains []storage.Domain
	merged := 0
	for _, d := range in.View.Domains {
		if !slices.Contains(n.Domains, d.Name) {
			domains = append(domains, d)
			continue
		}
		merged++
		if !away(d) {
			one.LabelValues = slices.Concat(one.LabelValues, d.LabelValues)
		}
		one.Troubled = slices.Concat(one.Troubled, d.Troubled)
		one.Daemons, one.Rest, one.Touched = one.Daemons+d.Daemons, one.Rest.Plus(d.Rest), one.Touched || d.Touched
		one.Returned = one.Returned || d.Returned
	}
	if merged < len(n.Domains) {
		return in // what a View is too large to name cannot be left out of a budget
	}
	if one.Returned && (!fresh(in) || in.Health.Placement != in.View.Placement || !n.OKToStop.OK) {
		// That they may stop together was said of what was placed on them then. No rule of a pool says it, as it does of a
		// zone.
		one.OKToStop = &storage.Answer{
			Refusal: storage.RefusalHarm,
			Reason:  "an OSD of " + n.Name + " is back, and Ceph has not said since then that they may stop together",
		}
	}
	if in.Health.Moving {
		one.OKToStop = &storage.Answer{
			Refusal: storage.RefusalHarm,
			Reason:  "data is moving, and Ceph says which OSDs of " + n.Name + " may stop together as it lies at this moment",
		}
	}
	domains = append(domains, one)
	slices.SortFunc(domains, func(a, b storage.Domain) int { return strings.Compare(a.Name, b.Name) })
	in.View.Domains, in.together = domains, one.Name
	in.View.Nodes, in.View.Mons = slices.Clone(in.View.Nodes), slices.Clone(in.View.Mons)
	for i := range in.View.Nodes {
		if x := &in.View.Nodes[i]; x.Name == c.Node {
			x.Domain, x.Domains = c.Domain.Name, nil
		}
	}
	for i := range in.View.Mons {
		if x := &in.View.Mons[i]; x.Node == c.Node {
			x.Domain = c.Domain.Name
		}
	}
	return in
}

// away tells whether all daemons of a failure domain have gone. What Ceph said of them together it said of those that
// went: when they are back, budgets that nobody has changed since must keep all but one.
func away(d storage.Domain) bool {
	gone := 0
	for _, x := range d.Troubled {
		if !x.Up && (x.Pod.Leaving() || x.Pod == storage.PodNone) {
			gone++
		}
	}
	return d.Daemons > 0 && gone == d.Daemons
}

// asHeld is the input as the lease's holders make it: failure domains that stop together are one, and a fence bears
// with nodes that are held back, also for those that share its failure domain.
func (in Input) asHeld() Input {
	if len(in.Lease.Holders) == 0 {
		return in
	}
	for _, h := range in.Lease.Holders {
		in = in.bearingToOpen(h)
	}
	if h := in.Lease.Holders[0]; h.Stops == lease.StopTogether {
		return in.asOne(h)
	}
	return in
}

// turn is the failure domain that a claim is about now: of those that go one by one, the one that the data misses;
// otherwise the first that still serves. When all are down it is the claim's own.
func (in Input) turn(c lease.Claim) storage.FailureDomain {
	n, several := in.severalDomains(c)
	if !several || c.Stops == lease.StopTogether {
		return c.Domain
	}
	affected := Affected(in)
	for _, name := range append([]string{in.Open.Name}, n.Domains...) {
		if slices.Contains(n.Domains, name) && contains(affected, name) {
			return in.domain(name)
		}
	}
	if next := n.NextDomain(); !slices.Contains(n.Down, next) {
		return in.domain(next)
	}
	return c.Domain
}

// Turn names the failure domains that must be looked at for the lease's holders.
func Turn(in Input) (out []string) {
	for _, c := range in.Lease.Holders {
		if c.OfMon() {
			continue
		}
		out = append(out, in.turn(c).Name)
	}
	return out
}

// Serves tells whether what a decision opens is what a claim was granted.
func Serves(in Input, d Decision, c lease.Claim) bool {
	if c.OfMon() {
		return true // nothing is open for it
	}
	if d.Mode != ModeOpen || d.Open == c.Domain {
		return d.Mode == ModeOpen
	}
	n, several := in.severalDomains(c)
	return several && c.Stops == lease.StopOneByOne && n.In(d.Open.Name)
}

// with are the failure domains that are open beside the one that a decision names.
func (in Input) with(d Decision) (out []string) {
	if d.Mode != ModeOpen || len(in.Lease.Holders) == 0 {
		return nil
	}
	c := in.Lease.Holders[0]
	n, several := in.severalDomains(c)
	if !several || c.Stops != lease.StopTogether || d.Open != c.Domain {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(n.Domains), func(name string) bool { return name == d.Open.Name })
}
