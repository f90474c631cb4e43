package budget

import (
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what the keeper and whoever explains it have in common: from what is known to an Input. Who asks why
// something waits must not judge by less than the keeper does.

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
	Going        []string                `json:"going,omitempty"`
	Life         *storage.Life           `json:"life,omitempty"`
	HeldBack     []string                `json:"heldBack,omitempty"`
	Released     []string                `json:"released,omitempty"`
	Shuts        bool                    `json:"shuts,omitempty"`
	// BearsForItself is as in Input.
	BearsForItself bool `json:"bearsForItself,omitempty"`
}

// Input joins what is known with a look.
func (k Known) Input(now time.Time, view storage.View, health storage.Health, l lease.State) Input {
	in := Input{
		Now: now, View: view, Health: health, Lease: l, Settings: k.Settings, Proof: k.Proof, Announced: k.Announced,
		HealingSince: k.HealingSince, Unheard: k.Unheard, Open: k.Open, Opened: k.Opened, LeftOut: k.LeftOut,
		Going: k.Going, Life: k.Life, HeldBack: k.HeldBack, Released: k.Released, Shuts: k.Shuts,
		BearsForItself: k.BearsForItself,
	}
	in.HealingSince = NextHealingSince(in)
	return in
}

// Remembered is what the keeper remembers of a decision for the next one.
type Remembered struct {
	Proof        *storage.CleanProof     `json:"proof,omitempty"`
	Announced    map[string]Announcement `json:"announced,omitempty"`
	HealingSince time.Time               `json:"healingSince,omitzero"`
}

// Foreign says of a claim that it speaks of a kind of failure domain that is no longer the pools' smallest one; "": it
// does not.
func Foreign(in Input, c lease.Claim) string {
	if in.View.Unavailable != "" || len(in.View.Problems) > 0 || c.Domain.Type == in.View.FailureDomainType || c.OfMon() {
		return ""
	}
	return fmt.Sprintf("%s is no longer a failure domain of the pools, which is %s now", c.Domain,
		in.View.FailureDomainType)
}

// grant supposes that whoever may have the lease now gets it.
func grant(in Input) (lease.State, []lease.Claim) {
	l, granted := in.Lease.Grant(lease.Rules{Together: lease.SameDomain, Gate: func(c lease.Claim) storage.Answer {
		return LeaseGate(in, c)
	}}, in.Now)
	return l.Note(func(c lease.Claim) lease.Claim { c.Stops = Stops(in, c); return c }), granted
}
