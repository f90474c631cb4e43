package budget

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what the keeper and whoever explains it have in common: from what is known to an Input, and what a pass
// makes of the lease. Who asks why something waits must not judge by less than the keeper does.

// Known is what a keeper judges by beside what its last look saw, the health of the data and the lease.
type Known struct {
	Settings     storage.Settings        `json:"settings"`
	Proof        *storage.CleanProof     `json:"proof,omitempty"`
	Announced    map[string]Announcement `json:"announced,omitempty"`
	HealingSince time.Time               `json:"healingSince,omitzero"`
	Unheard      bool                    `json:"unheard,omitempty"`
	Open         storage.FailureDomain   `json:"open,omitzero"`
	Opened       storage.FailureDomain   `json:"opened,omitzero"`
	LeftOut      []string                `json:"leftOut,omitempty"`
	Life         *storage.Life           `json:"life,omitempty"`
}

// Input joins what is known with a look.
func (k Known) Input(now time.Time, view storage.View, health storage.Health, l lease.State) Input {
	in := Input{
		Now: now, View: view, Health: health, Lease: l, Settings: k.Settings, Proof: k.Proof, Announced: k.Announced,
		HealingSince: k.HealingSince, Unheard: k.Unheard, Open: k.Open, Opened: k.Opened, LeftOut: k.LeftOut, Life: k.Life,
	}
	in.HealingSince = NextHealingSince(in)
	return in
}

// Foreign lists claims that speak of a kind of failure domain that is no longer the pools' smallest one.
func Foreign(in Input) (out []lease.Claim) {
	if in.View.Unavailable != "" || len(in.View.Problems) > 0 {
		return nil
	}
	for _, c := range slices.Concat(in.Lease.Holders, in.Lease.Queue) {
		if c.Domain.Type != in.View.FailureDomainType && !c.OfMon() {
			out = append(out, c)
		}
	}
	return out
}

// Revoked lists the claims that their jobs lose now, each with the reason: those that are foreign, and those that were
// held in reserve for too long.
func Revoked(in Input) (out []lease.Claim) {
	for _, c := range Foreign(in) {
		c.WaitsFor = fmt.Sprintf("%s is no longer a failure domain of the pools, which is %s now", c.Domain,
			in.View.FailureDomainType)
		out = append(out, c)
	}
	for _, c := range in.Lease.Overdue(in.Now, lease.SameDomain) {
		c.WaitsFor = fmt.Sprintf("others wait for it, and in %s the job did not get the lease of another storage cluster "+
			"that it needs as well", c.Reserve)
		out = append(out, c)
	}
	return out
}

// TakeBack returns the lease without the claims of jobs that are done and healed. Those in released have no next claim.
func TakeBack(in Input) (l lease.State, released []lease.Claim) {
	l = in.Lease
	for _, c := range in.Lease.Holders {
		if (c.Finishing && Healed(in, c).OK) || Parked(in, c) {
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
func Grant(in Input, seen func(lease.Claim) bool) (lease.State, []lease.Claim) {
	l, granted := in.Lease.Grant(lease.Rules{Together: lease.SameDomain, Gate: func(c lease.Claim) storage.Answer {
		if !seen(c) { // it came during the look, so the next pass follows at once
			return storage.Answer{Reason: "it is looked at for the first time"}
		}
		return LeaseGate(in, c)
	}}, in.Now)
	return l.NoteStops(func(c lease.Claim) lease.Stops { return Stops(in, c) }), granted
}

func anyClaim(lease.Claim) bool { return true }

// WouldGrant is what the keeper would answer to a claim that is made now. Whether everybody lives it would ask first,
// within a report period or two; that everybody does is supposed, unless somebody is known to be silent.
func WouldGrant(in Input, c lease.Claim) storage.Answer {
	for _, r := range Revoked(in) {
		in.Lease = in.Lease.Release(r.WorkflowID, r.RunID)
	}
	in.Lease, _ = TakeBack(in)
	in.Lease = in.Lease.Request(c)
	if in.Life == nil || in.Life.Silent == 0 {
		in.Life = &storage.Life{}
	}
	l, _ := Grant(in, anyClaim)
	asked, granted, _ := l.Find(c.WorkflowID, c.RunID)
	return storage.Answer{OK: granted, Reason: asked.WaitsFor}
}
