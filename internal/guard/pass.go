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

// Revoked lists the claims that their jobs lose now, each with the reason: those that mean nothing any more, and those
// that were held in reserve for too long.
func Revoked(g Guard, in Input) (out []lease.Claim) {
	for _, c := range slices.Concat(in.Lease.Holders, in.Lease.Queue) {
		if why := g.Void(in, c); why != "" {
			c.WaitsFor = why
			out = append(out, c)
		}
	}
	for _, c := range in.Lease.Overdue(in.Now, together(g, in)) {
		c.WaitsFor = fmt.Sprintf("others wait for it, and in %s the job did not get the lease of another storage cluster "+
			"that it needs as well", c.Reserve)
		out = append(out, c)
	}
	return out
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

// WouldGrant is what the keeper would answer to a claim that is made now. Whether everybody lives it would ask first,
// within a report period or two; that everybody does is supposed, unless somebody is known to be silent.
func WouldGrant(g Guard, in Input, c lease.Claim) storage.Answer {
	for _, r := range Revoked(g, in) {
		in.Lease = in.Lease.Release(r.WorkflowID, r.RunID)
	}
	in.Lease, _ = TakeBack(g, in)
	in.Lease = in.Lease.Request(c)
	if in.Life == nil || in.Life.Silent == 0 {
		in.Life = &storage.Life{}
	}
	l, _ := Grant(g, in, anyClaim)
	asked, granted, _ := l.Find(c.WorkflowID, c.RunID)
	return storage.Answer{OK: granted, Reason: asked.WaitsFor}
}

// NextOverdue is when a claim that is held in reserve could go back although nothing happens; zero: never.
func NextOverdue(g Guard, in Input) time.Time {
	if at := in.Lease.NextOverdue(together(g, in)); at.After(in.Now) {
		return at
	}
	return time.Time{}
}

func together(g Guard, in Input) func(a, b lease.Claim) bool {
	return func(a, b lease.Claim) bool { return g.Together(in, a, b) }
}
