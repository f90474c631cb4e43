// Package cephguard is the guard of a Ceph cluster: one failure domain at a time, proved by PGs, signs of life, the
// cluster's own ok-to-stop, and a majority of the mons. Its decisions are in package budget.
package cephguard

import (
	"time"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/flags"
	"github.com/lockkeeper/lockkeeper/internal/guard"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Guard implements guard.Guard.
type Guard struct{}

var _ guard.Guard = Guard{}

// Together lets claims of one failure domain be held at the same time, and those of the same mon.
func (Guard) Together(_ guard.Input, a, b lease.Claim) bool { return lease.SameDomain(a, b) }

// Gate implements guard.Guard.
func (Guard) Gate(in guard.Input, c lease.Claim) storage.Answer { return budget.LeaseGate(in.Input, c) }

// Decide implements guard.Guard.
func (Guard) Decide(in guard.Input) guard.Verdict {
	d := budget.Decide(in.Input)
	return guard.Verdict{
		Decision: d, Clean: budget.Clean(in.Input), Heard: in.Unheard && !budget.NextUnheard(in.Input),
		Commit: budget.AwaitsCommit(in.Input, d),
		Marks:  budget.PlanMarks(in.Input, d), Emptying: budget.Emptying(in.Input, d),
		Remembered: budget.Remembered{
			Proof: budget.NextProof(in.Input), Announced: budget.NextAnnounced(in.Input, d), HealingSince: in.HealingSince,
		},
	}
}

// Healed implements guard.Guard.
func (Guard) Healed(in guard.Input, c lease.Claim) storage.Answer { return budget.Healed(in.Input, c) }

// Interest are the failure domains whose turn it is, and what the claims name, but for mons: all of them are seen
// anyway.
func (Guard) Interest(in guard.Input, claims []lease.Claim) (out storage.Interest) {
	out.Domains = budget.Turn(in.Input)
	for _, c := range claims {
		if c.OfMon() {
			continue
		}
		out.Domains, out.Nodes = append(out.Domains, c.Domain.Name), append(out.Nodes, c.Node)
		if c.Next != nil {
			out.Domains, out.Nodes = append(out.Domains, c.Next.Domain.Name), append(out.Nodes, c.Next.Node)
		}
		out.Daemons = append(out.Daemons, c.Daemons...)
	}
	return out
}

// Void implements guard.Guard.
func (Guard) Void(in guard.Input, c lease.Claim) string { return budget.Foreign(in.Input, c) }

// Terms implements guard.Guard: how the daemons stop is asked anew at every pass, and which of them were down at the
// grant alone.
func (Guard) Terms(in guard.Input, c lease.Claim, granted bool) lease.Claim {
	if granted {
		c.DownBefore = budget.DownBefore(in.Input, c)
	}
	c.Stops = budget.Stops(in.Input, c)
	return c
}

// Question implements guard.Guard.
func (Guard) Question(in guard.Input) (storage.FailureDomain, bool) { return budget.Question(in.Input) }

// Serves implements guard.Guard.
func (Guard) Serves(in guard.Input, d budget.Decision, c lease.Claim) bool {
	return budget.Serves(in.Input, d, c)
}

// Parked implements guard.Guard.
func (Guard) Parked(in guard.Input, c lease.Claim) bool { return budget.Parked(in.Input, c) }

// Flag implements guard.Guard: while a host has noout its OSDs stay in, so that no data moves because they are down.
func (Guard) Flag() flags.Kind {
	return flags.Kind{Name: "noout", Title: "Noout", Of: "Ceph", Undo: "ceph osd unset-group noout"}
}

// Flags implements guard.Guard: noout on the hosts of the holders.
func (g Guard) Flags(in flags.Input) flags.Plan {
	in.Kind, in.HostsOf = g.Flag(), map[string][]string{}
	for _, n := range in.Nodes {
		if n.Name != "" {
			in.HostsOf[n.Name] = n.CrushHosts()
		}
	}
	return flags.Decide(in)
}

// Next implements guard.Guard.
func (Guard) Next(in guard.Input, after budget.Remembered, ours []flags.Record) time.Time {
	return budget.NextTimer(in.Input, after.Announced, ours)
}
