package workflows

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/lease"
)

// This file is the order in which a job gets the leases of several storage clusters (ADR 25). It is pure.
//
// All jobs ask in the order of the clusters' keys. What is granted on the way is held in reserve: it keeps others away,
// and nothing opens. When the last one is there, the keepers are told in the same order that the job is ready, and each
// opens. A job that loses one on the way gives the others back and begins anew.

// step is what a job does next on the way to all of its leases.
type step string

const (
	stepBegin   step = "Begin"   // all are held: the work can begin
	stepReserve step = "Reserve" // ask for one, or wait for it, to be held in reserve
	stepHold    step = "Hold"    // ask for one, or wait for it, to be held at once
	stepReady   step = "Ready"   // tell one keeper that all are held in reserve, or wait until that has an effect
	stepLost    step = "Lost"    // one was taken away that was there, or was asked for
)

// nextStep is what comes next, and for which of the claims, given in the order of their keys. With reserve nothing
// takes effect before all claims are granted. Without it each does by itself: what it allows has happened already.
func nextStep(claims []ClaimState, reserve bool) (step, int) {
	has := func(c ClaimState) bool {
		switch c.Stage {
		case claimHeld:
			return true
		case claimFree:
			return !reserve && c.parked() // nothing is left to be held
		default:
			return c.reserved()
		}
	}
	first := slices.IndexFunc(claims, func(c ClaimState) bool { return !has(c) })
	if first >= 0 {
		asked := func(c ClaimState) bool { return c.Stage != claimFree }
		begun := func(c ClaimState) bool { return c.held() || c.Claim.Ready && c.reserved() }
		switch {
		case !asked(claims[first]) && slices.ContainsFunc(claims[first+1:], asked), // it was asked for before those
			reserve && slices.ContainsFunc(claims, begun): // it was there before those took effect
			return stepLost, first
		case reserve:
			return stepReserve, first
		default:
			return stepHold, first
		}
	}
	if i := slices.IndexFunc(claims, func(c ClaimState) bool { return c.reserved() }); i >= 0 {
		return stepReady, i
	}
	return stepBegin, 0
}

// reserved tells whether the lease is held in reserve, as far as the job knows.
func (c *ClaimState) reserved() bool {
	return c.Stage == claimReserved || c.Claim.Ready && (c.Stage == claimAsked || c.Stage == claimUnsure)
}

// patience is for how long the next claim may be held in reserve while others wait.
func (c *ClaimState) patience() time.Duration {
	if c.Ended == LeaseRevoked && !c.Claim.Ready {
		return lease.NextReserve(c.Claim.Reserve)
	}
	return lease.FirstReserve
}
