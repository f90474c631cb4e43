package guard

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what a pass of a keeper makes of the lease, whatever the kind of storage. Who asks why something waits
// must not judge by less than the keeper does, so that both use it.

// Revoked lists the claims that their jobs lose now, each with the reason: those that mean nothing any more, those that
// were held in reserve for too long, and those whose turn is over although nothing has happened.
func Revoked(g Guard, in Input) (out []lease.Claim) {
	for _, c := range slices.Concat(in.Lease.Holders, in.Lease.Queue) {
		if why := g.Void(in, c); why != "" {
			c.WaitsFor = why
			out = append(out, c)
		}
	}
	for _, c := range in.Lease.SpentTurns(in.Now, together(g, in), idle(in)) {
		c.WaitsFor = fmt.Sprintf("others wait for it, and in %s no daemon of %s went down", c.Turn, c.Node)
		out = append(out, c)
	}
	out = append(out, outranked(g, in)...)
	for _, c := range in.Lease.Overdue(in.Now, together(g, in)) {
		c.WaitsFor = fmt.Sprintf("others wait for it, and in %s the job did not get the lease of another storage cluster "+
			"that it needs as well", c.Reserve)
		out = append(out, c)
	}
	return out
}

// outranked lists the holders that give way: nothing is open for them, nothing of theirs has begun or can go on, and
// somebody more urgent waits who could go without them. They wait for nodes that are lost and held back, to be fenced
// first; their own may be one of these.
func outranked(g Guard, in Input) []lease.Claim {
	if len(in.HeldBack) == 0 || !in.Open.IsZero() || len(in.Lease.Holders) == 0 {
		return nil
	}
	without := supposingLife(in)
	without.Lease.Holders = nil
	for _, w := range in.Lease.Queue {
		gives := func(h lease.Claim) bool {
			return w.Priority > h.Priority && !g.Together(in, h, w) && !h.Finishing && !h.Reserved() &&
				(idle(in)(h) || in.ToBeFenced(h.Node)) && !g.Gate(in, h).OK
		}
		if slices.ContainsFunc(in.Lease.Holders, func(h lease.Claim) bool { return !gives(h) }) || !g.Gate(without, w).OK {
			continue
		}
		out := slices.Clone(in.Lease.Holders)
		for i := range out {
			out[i].WaitsFor = fmt.Sprintf("%s goes first, with a higher priority (%s)", w.WorkflowID, w.Priority)
		}
		return out
	}
	return nil
}

// TakeBack returns the lease without the claims of jobs that are done and healed. Those in released have no next claim.
func TakeBack(g Guard, in Input) (l lease.State, released []lease.Claim) {
	l = in.Lease
	for _, c := range in.Lease.Holders {
		if (c.Finishing && g.Healed(in, c).OK) || g.Parked(in, c) {
			var handedOn bool
			if l, handedOn = l.Return(c.WorkflowID, c.RunID, in.Now); !handedOn {
				released = append(released, c)
			}
		}
	}
	return l, released
}

// Grant returns the lease with the grants to who may have it now. seen tells whether the look was asked about all that
// a claim speaks of.
func Grant(g Guard, in Input, seen func(lease.Claim) bool) (l lease.State, granted []lease.Claim) {
	l, granted = in.Lease.Grant(lease.Rules{Together: together(g, in), Gate: func(c lease.Claim) storage.Answer {
		if !seen(c) { // it came during the look, so the next pass follows at once
			return storage.Answer{Reason: "it is looked at for the first time"}
		}
		return g.Gate(in, c)
	}}, in.Now)
	return l.Note(func(c lease.Claim) lease.Claim {
		return g.Terms(in, c, slices.ContainsFunc(granted, func(x lease.Claim) bool { return x.Token == c.Token }))
	}), granted
}

func anyClaim(lease.Claim) bool { return true }

// supposingLife takes it that everybody lives who was not asked for the sake of some other failure domain, unless
// somebody is known to be silent.
func supposingLife(in Input) Input {
	if in.Life == nil || in.Life.Silent == 0 {
		in.Life = &storage.Life{}
	}
	return in
}

// WouldGrant is what the keeper would answer to a claim that is made now. Whether everybody lives it would ask first,
// within a report period or two; that everybody does is supposed, unless somebody is known to be silent.
func WouldGrant(g Guard, in Input, c lease.Claim) storage.Answer {
	for _, r := range Revoked(g, in) {
		in.Lease = in.Lease.Release(r.WorkflowID, r.RunID)
	}
	in.Lease, _ = TakeBack(g, in)
	in.Lease = in.Lease.Request(c)
	l, _ := Grant(g, supposingLife(in), anyClaim)
	asked, granted, _ := l.Find(c.WorkflowID, c.RunID)
	return storage.Answer{OK: granted, Reason: asked.WaitsFor}
}

// NextRevoked is when a claim could go back to those who wait although nothing happens; zero: never.
func NextRevoked(g Guard, in Input) (next time.Time) {
	for _, at := range []time.Time{
		in.Lease.NextOverdue(together(g, in)), in.Lease.NextSpentTurn(together(g, in), idle(in)),
	} {
		if at.After(in.Now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// idle tells whether nothing has begun of what a claim was granted for: its node's daemons are there, and none is down.
// Of a look that tells nothing it does not tell that.
func idle(in Input) func(lease.Claim) bool {
	return func(c lease.Claim) bool {
		n, seen := in.View.Node(c.Node)
		daemons, down := n.Counts()
		return seen && in.View.Unavailable == "" && !n.Gone && daemons > 0 && down == 0
	}
}

func together(g Guard, in Input) func(a, b lease.Claim) bool {
	return func(a, b lease.Claim) bool { return g.Together(in, a, b) }
}
