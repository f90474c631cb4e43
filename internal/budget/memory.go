package budget

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/flags"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file holds what the keeper remembers from one decision to the next, as functions of what it remembered and saw.

// NextProof returns the proof of whole data that counts from now on. A clean reading renews it, one that contradicts it
// voids it. Pods that are on their way out on nodes that are lost and held back are no reason to do without: their
// daemons serve, and whatever ends them later happens after the proof.
func NextProof(in Input) *storage.CleanProof {
	if Clean(in.Bearing()) && in.View.Unavailable == "" {
		return &storage.CleanProof{
			ChangeEpoch: in.View.ChangeEpoch, Shape: in.View.Shape, At: in.Now,
			Awaited: in.View.Awaited,
		}
	}
	if in.Proof == nil || contradicted(in) {
		return nil
	}
	return in.Proof
}

// contradicted: nothing went up or down since the proof, and yet the data is known not to be clean. So something else
// is wrong with it, and that all copies are there outside of the touched domain cannot be relied on.
func contradicted(in Input) bool {
	current := in.Health.ChangeEpoch >= in.View.ChangeEpoch && in.View.Unavailable == ""
	return current && in.Health.Fresh && !in.Health.Clean && in.View.ChangeEpoch == in.Proof.ChangeEpoch
}

// NextUnheard returns whether the silence of the governors still counts: until everybody has given a sign of life.
func NextUnheard(in Input) bool { return in.Unheard && !fresh(in) }

// NextHealingSince returns since when all daemons serve and only the PGs are not known to be clean; zero when that is
// not the state of things.
func NextHealingSince(in Input) time.Time {
	if in.View.Unavailable != "" || Clean(in) || len(Affected(in)) > 0 {
		return time.Time{}
	}
	if in.HealingSince.IsZero() {
		return in.Now
	}
	return in.HealingSince
}

// NextAnnounced returns the announcements after a decision: the one that it opened gets its time, those whose time is
// over or whose daemons went down are spent, those of nodes that are back in service are forgotten.
func NextAnnounced(in Input, d Decision) map[string]Announcement {
	out := maps.Clone(in.Announced)
	if out == nil {
		out = map[string]Announcement{}
	}
	if in.View.Unavailable != "" {
		return out // nobody knows who is cordoned
	}
	//workflowcheck:ignore each is judged by itself
	for name, a := range out {
		n, ok := in.View.Node(name)
		if !ok || !n.Leaving() {
			delete(out, name)
			continue
		}
		_, down := n.Counts()
		gone := down > 0 && !Clean(in)
		left := !slices.Contains(n.Down, n.NextDomain()) || len(dead(in, n)) > 0
		if gone && !a.Spent && left && len(n.Domains) > 1 {
			a.Opened, gone = in.Now, false // what is left of the node goes when the data is whole again
		}
		a.Spent = over(in, a, true) || gone
		out[name] = a
	}
	if _, seen := out[d.Announcement]; d.Announcement != "" && !seen {
		out[d.Announcement] = Announcement{Node: d.Announcement, Opened: in.Now}
	}
	return out
}

// Healed answers whether a job that has finished its work may give the lease back: its domain serves again and the data
// is whole, or nothing more can be gained by holding on to it.
func Healed(in Input, c lease.Claim) storage.Answer {
	if in.View.Unavailable != "" {
		return storage.Answer{Reason: "the storage cluster: " + in.View.Unavailable}
	}
	if c.OfMon() {
		return monHealed(in, c)
	}
	in = in.bearingToEnd(c).asOne(c)
	domain := in.View.Domain(c.Domain.Name)
	down, rest := domain.Down(), domain.Rest.Down
	// Data that is clean without the node's daemons (they held none, say) is no reason to forget that they are expected
	// back.
	if len(c.FlagHosts) > 0 && in.Now.Before(c.Granted.Add(in.Settings.MaintenanceTimeout)) {
		for _, x := range down {
			if c.Concerns(x) && !slices.Contains(c.DownBefore, x.Name) {
				return storage.Answer{Reason: x.String()}
			}
		}
		if rest > 0 { // any of them may be one of the job's
			return storage.Answer{Reason: describe(down, domain.Tally().Down)}
		}
		for _, m := range in.View.Mons { // without it the next node with a mon would have to wait anyway
			if c.Node != "" && m.Node == c.Node && !m.Standing() {
				return storage.Answer{Reason: m.String()}
			}
		}
	}
	if Clean(in) || timedOut(in) {
		return storage.Answer{OK: true}
	}
	affected := Affected(in)
	if len(affected) > 0 && !contains(affected, c.Domain.Name) {
		return storage.Answer{OK: true, Reason: fmt.Sprintf("%s serves again; what is unclean is due to %s %s", c.Domain,
			in.View.FailureDomainType, affected[0].Name)}
	}
	if all := domain.Tally().Down; all > 0 {
		return storage.Answer{Reason: describe(down, all)}
	}
	if in.Health.ButDisconnected && settled(in) && in.View.Disconnected.Outside(c.Domain) {
		// They are for others to start anew, who may be waiting for this lease.
		return storage.Answer{OK: true, Reason: fmt.Sprintf("%s serves again, and the data is whole; but %s", c.Domain,
			disconnectedToRestart(in.View.Disconnected))}
	}
	return storage.Answer{Reason: notClean(in)}
}

// DownBefore lists the daemons of a claim's node that are down although nobody has touched the node yet: a dead disk,
// say. Whether those that are down on a node which somebody else drains were down before cannot be told.
func DownBefore(in Input, c lease.Claim) []string {
	if c.Observing || c.OfMon() {
		return nil
	}
	var out []string
	for _, x := range in.asOne(c).View.Domain(c.Domain.Name).Down() {
		if c.Concerns(x) && !x.Up {
			out = append(out, x.Name)
		}
	}
	return out
}

// Parked answers whether a job whose node stays away longer than its noout lasts has nothing left to hold the lease
// for: the data has healed without the node. Otherwise a node that never comes back would hold everybody back for ever.
func Parked(in Input, c lease.Claim) bool {
	domain := in.asOne(c).View.Domain(c.Domain.Name)
	if c.Stops == lease.StopOneByOne && domain.Tally().Down < domain.Daemons {
		return false // the data is whole between two of its daemons as well
	}
	return !c.Finishing && !c.Reserved() && len(c.FlagHosts) > 0 && Clean(in) &&
		!in.Now.Before(c.Granted.Add(in.Settings.MaintenanceTimeout)) && domain.Tally().Down > 0
}

// askAgain is when a question is asked again that nobody answered, or whose answer holds up what has begun. A manager
// that comes back is noticed earlier.
const askAgain = 30 * time.Second

// mayChangeItsMind: the storage cluster's answer about a domain may become another one, and nothing else tells that it
// has. Where nothing is down a no has a cause that shows when it goes.
func mayChangeItsMind(in Input, d storage.Domain) bool {
	a := d.OKToStop
	return a != nil && (a.Silence || a.Refusal != "" && len(missed(in, d)) > 0)
}

// NextTimer returns when a decision could change although nothing happens; zero for never.
func NextTimer(in Input, announced map[string]Announcement, ours []flags.Record) time.Time {
	var next time.Time
	at := func(t time.Time) {
		if t.After(in.Now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	//workflowcheck:ignore the earliest is the same in any order
	for _, a := range announced {
		if !a.Spent {
			at(a.Opened.Add(in.Settings.AnnouncementTimeout))
		}
	}
	for _, f := range ours {
		at(f.Until)
		if !f.Withdrawn {
			at(f.Expires)
		}
	}
	for _, h := range in.Lease.Holders {
		at(h.Granted.Add(in.Settings.MaintenanceTimeout))
	}
	at(in.Lease.NextOverdue(lease.SameDomain))
	if slices.ContainsFunc(in.asHeld().View.Domains, func(d storage.Domain) bool { return mayChangeItsMind(in, d) }) {
		at(in.Now.Add(askAgain))
	}
	if !in.HealingSince.IsZero() && in.Settings.PGHealthCheckTimeout > 0 {
		at(in.HealingSince.Add(in.Settings.PGHealthCheckTimeout))
	}
	return next
}
