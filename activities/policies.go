package activities

import (
	"context"
	"errors"
	"reflect"
	"slices"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/flags"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/precedence"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is policies: what lockkeeper's steps read of them, and what the keeper remembers in their status.

// ErrNotFound is what adapters return, possibly wrapped, for an object that does not exist.
var ErrNotFound = errors.New("not found")

// PolicyVersion tells a policy's spec from that of another policy of the same name, and from what it was before. The
// zero value is of no policy.
type PolicyVersion struct {
	UID        string `json:"uid,omitempty"`
	Generation int64  `json:"generation,omitempty"`
}

// Policy is a MaintenancePolicy as far as lockkeeper's steps need it.
type Policy struct {
	Key        storage.ClusterKey
	UID        string
	Generation int64
	Deleting   bool
	Settings   storage.Settings
	Memory     Memory
	Kind       storage.Kind
	// Daemons, Mons and Managers are the label selectors of their pods, in the policy's namespace.
	Daemons, Mons, Managers string
	// Second says which other policy was first to look after the same storage cluster, by what the two say of it; "" for
	// none. What the storage cluster says of itself comes on top: Standing.
	Second string
	// First is that other policy.
	First storage.ClusterKey
	// Listed are all policies, this one included, as they were read together.
	Listed []precedence.Policy
	// Object is the policy as it was read, for the adapter of its kind of storage.
	Object any
}

// Standing is where the policy stands among all others, once the storage cluster has told its ID; "": it told none.
func (p Policy) Standing(id string) precedence.Standing {
	for _, me := range p.Listed {
		if me.Key == p.Key {
			return precedence.Judge(me, id, p.Listed)
		}
	}
	return precedence.Judge(precedence.Policy{Key: p.Key, Claim: p.Memory.Claim}, id, p.Listed)
}

// guards tells whether the keeper of another policy makes budgets over the same pods.
func (p Policy) guards(other storage.ClusterKey) bool {
	return other.Namespace == p.Key.Namespace && slices.ContainsFunc(p.Listed,
		func(o precedence.Policy) bool { return o.Key == other && !o.Unguarded })
}

// Memory is what a keeper has to know of the one before it: who holds the lease, and which flags are ours. It is kept
// in the policy's status, and written there before what it describes is done.
type Memory struct {
	Lease lease.State    `json:"lease"`
	Flags []flags.Record `json:"noout,omitempty"`
	// Claim is which storage cluster the policy means, and whether its keeper looks after it.
	Claim precedence.Claim `json:"claim,omitzero"`
	// Fencing is which Machines are held, and for whom; nil: none.
	Fencing *fencing.Ledger `json:"fencing,omitempty"`
}

// Covered tells whether a keeper that knew only of written would miss nothing that has to be undone, or that somebody
// was promised: every claim and every flag in m is written down. What a claim waits for, and that a flag was seen, or
// that one is no longer there, it finds out again.
func (m Memory) Covered(written Memory) bool {
	if m.Claim != written.Claim || m.Lease.Token != written.Lease.Token || !written.Fencing.Covers(m.Fencing) {
		return false
	}
	for _, c := range m.Lease.Holders {
		if w, held, _ := written.Lease.Find(c.WorkflowID, c.RunID); !held || !reflect.DeepEqual(c, w) {
			return false
		}
	}
	for _, c := range m.Lease.Queue {
		w, held, asked := written.Lease.Find(c.WorkflowID, c.RunID)
		if w.WaitsFor = c.WaitsFor; !asked || held || !reflect.DeepEqual(c, w) {
			return false
		}
	}
	for _, n := range m.Flags {
		if !slices.ContainsFunc(written.Flags, n.CoveredBy) {
			return false
		}
	}
	return true
}

// Policies reads policies and writes their status.
type Policies interface {
	// HostedByPods is what each node hosts as far as pods tell, for when the storage cluster cannot be asked at all.
	HostedByPods(ctx context.Context, p Policy) (map[string]fencing.Hosted, error)
	// Policy returns ErrNotFound when there is none.
	Policy(ctx context.Context, key storage.ClusterKey) (Policy, error)
	// ReportStatus writes the whole status and its events. It returns ErrNotFound when there is no policy.
	ReportStatus(ctx context.Context, key storage.ClusterKey, report Report) error
	// RenewStatus confirms the status, unless it does not say what was reported. A policy that is gone is no error.
	RenewStatus(ctx context.Context, key storage.ClusterKey, renewal Renewal) (differs bool, err error)
	// Guard puts lockkeeper's finalizer on the policy, or takes it off.
	Guard(ctx context.Context, key storage.ClusterKey, on bool) error
	// Ending tells how a policy that is deleted ends. One that is gone is no error.
	Ending(ctx context.Context, key storage.ClusterKey) (budget.Ending, error)
	// TellOfNamespace creates an event about the policy's namespace. It is kept outside of it, and outlives it.
	TellOfNamespace(ctx context.Context, key storage.ClusterKey, e Event) error
}

// GuardInput says whether lockkeeper's finalizer is wanted.
type GuardInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	On      bool               `json:"on"`
}

// GuardPolicy puts the finalizer on, before anything is changed for this policy, or takes it off, after all is undone.
func (k *Keeper) GuardPolicy(ctx context.Context, in GuardInput) (struct{}, error) {
	if err := k.Policies.Guard(ctx, in.Cluster, in.On); err != nil && !errors.Is(err, ErrNotFound) {
		return struct{}{}, Unavailable("finalizer of MaintenancePolicy "+in.Cluster.String(), err)
	}
	return struct{}{}, nil
}

// PolicyEnding tells how a policy that is deleted ends: what a person says of it, and whether its namespace goes, too.
func (k *Keeper) PolicyEnding(ctx context.Context, key storage.ClusterKey) (budget.Ending, error) {
	e, err := k.Policies.Ending(ctx, key)
	if err != nil {
		return budget.Ending{}, Unavailable("read MaintenancePolicy "+key.String()+" and its namespace", err)
	}
	return e, nil
}

// FarewellInput is the last event about a policy's namespace.
type FarewellInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Event   Event              `json:"event"`
}

// TellFarewell says what is left behind, where it can still be read when the policy and its namespace are gone.
func (k *Keeper) TellFarewell(ctx context.Context, in FarewellInput) (struct{}, error) {
	if err := k.Policies.TellOfNamespace(ctx, in.Cluster, in.Event); err != nil {
		return struct{}{}, Unavailable("event about namespace "+in.Cluster.Namespace, err)
	}
	return struct{}{}, nil
}
