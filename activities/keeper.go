// Package activities holds the thin, idempotent steps in which lockkeeper looks at the world and changes it. Each
// observes (and returns a small struct) or applies (and may be repeated at any time); none decides. What an activity
// needs from outside is a small interface declared here; the adapters in internal/ satisfy them.
package activities

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// ErrNotFound is what adapters return, possibly wrapped, for an object that does not exist.
var ErrNotFound = errors.New("not found")

// Policy is a MaintenancePolicy as far as lockkeeper's steps need it.
type Policy struct {
	Key        storage.ClusterKey
	Generation int64
	Deleting   bool
	Settings   storage.Settings
	Memory     Memory
	// Daemons and Mons are the label selectors of their pods, in the policy's namespace.
	Daemons, Mons string
	// Second says which other policy was first to look after the same storage cluster; "" when this one is in charge.
	Second string
}

// Memory is what a keeper has to know of the one before it: who holds the lease, and which flags are ours. It is kept
// in the policy's status, and written there before what it describes is done.
type Memory struct {
	Lease lease.State    `json:"lease"`
	Noout []budget.Noout `json:"noout,omitempty"`
}

// Policies reads policies and writes their status.
type Policies interface {
	// Policy returns ErrNotFound when there is none.
	Policy(ctx context.Context, key storage.ClusterKey) (Policy, error)
	// ReportStatus writes the whole status and its events. A policy that is gone is no error.
	ReportStatus(ctx context.Context, key storage.ClusterKey, report Report) error
	// Guard puts lockkeeper's finalizer on the policy, or takes it off.
	Guard(ctx context.Context, key storage.ClusterKey, on bool) error
}

// Budgets writes PodDisruptionBudgets.
type Budgets interface {
	// ApplyBudgets makes the one budget of the storage daemons and that of the mons say what was decided, in this order. It
	// returns a reason when a budget that is not ours already covers the same pods, and then changes nothing there.
	ApplyBudgets(ctx context.Context, key storage.ClusterKey, specs budget.Specs) (BudgetResult, error)
	// ApplyStaticBudgets makes the budgets of mgr, mds, rgw and rbd-mirror follow their replicas. emptying are nodes that
	// nothing but such daemons may still keep from being empty.
	ApplyStaticBudgets(ctx context.Context, key storage.ClusterKey, emptying []string) (BudgetResult, error)
	// RemoveBudgets deletes every budget of ours for this policy.
	RemoveBudgets(ctx context.Context, key storage.ClusterKey) error
}

// BudgetResult says what happened to a budget.
type BudgetResult struct {
	Changed bool `json:"changed,omitempty"`
	// Generation of the daemons' budget after the write; the API server raises it with every change of the spec.
	Generation int64 `json:"generation,omitempty"`
	// MonGeneration is that of the mons' budget.
	MonGeneration int64 `json:"monGeneration,omitempty"`
	// Conflict names a budget of somebody else that covers the same pods; with two, every eviction would fail.
	Conflict string `json:"conflict,omitempty"`
}

// Quorum is the mons of a Ceph cluster, by name.
type Quorum struct {
	Mons []string `json:"mons,omitempty"`
	In   []string `json:"in,omitempty"`
}

// StorageCluster is one storage cluster, together with the Kubernetes objects that run it.
type StorageCluster interface {
	// Observe takes one look. That the storage cluster gives no answer is part of the View, not an error.
	Observe(ctx context.Context, in Look) (Seen, error)
	// Watch looks again and again, and returns when Health or Quorum differ from in.Last, or the daemons do.
	Watch(ctx context.Context, in Watching, beat func(Watched)) (Watched, error)
	SetNoout(ctx context.Context, hosts ...string) error
	UnsetNoout(ctx context.Context, hosts ...string) error
}

// StorageClusters finds the storage cluster of a policy.
type StorageClusters interface {
	StorageCluster(ctx context.Context, key storage.ClusterKey) (StorageCluster, error)
}

// Look is what an observer is asked to pay attention to, beyond what is out of order anyway.
type Look struct {
	Proof   *storage.CleanProof `json:"proof,omitempty"`
	Domains []string            `json:"domains,omitempty"` // wanted in the View, with an answer to ok-to-stop
	Nodes   []string            `json:"nodes,omitempty"`
	// Daemons and Hosts are what must have a name in the View, as have the domains and the nodes, the most important first.
	Daemons []string `json:"daemons,omitempty"`
	Hosts   []string `json:"hosts,omitempty"`
	// Bounded: the asker can do with a View that names only so many, and counts the others.
	Bounded bool `json:"bounded,omitempty"`
	// LastChange and Departed are the ChangeEpoch and the Departed of the last View that could be had.
	LastChange int64            `json:"lastChange,omitempty"`
	Departed   storage.Departed `json:"departed,omitempty"`
}

// Seen is what one look saw.
type Seen struct {
	View storage.View `json:"view"`
}

// Watched is what a watcher last knew.
type Watched struct {
	Health      storage.Health `json:"health"`
	Quorum      Quorum         `json:"quorum"`
	Unavailable string         `json:"unavailable,omitempty"`
	// Fingerprint stands for everything else whose change must be looked at: which daemons are up, flags, pools.
	Fingerprint string `json:"fingerprint"`
}

// Watching is what a watcher begins with.
type Watching struct {
	Last Watched `json:"last"`
	// Doubted is when something happened of which the storage cluster may not have heard yet. What was proved before that
	// does not count; the zero time: nothing did.
	Doubted time.Time `json:"doubted,omitzero"`
}

// Jobs tells about workflows.
type Jobs interface {
	// AwaitEnd returns when the workflow chain that began with this run has ended, in whatever way, and how.
	AwaitEnd(ctx context.Context, workflowID, runID string) (string, error)
}

// Keeper holds the keeper's activities.
type Keeper struct {
	Policies Policies
	Budgets  Budgets
	Clusters StorageClusters
	Jobs     Jobs
}

// ObserveInput asks for one look at a storage cluster and its policy.
type ObserveInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Look    Look               `json:"look"`
}

// Observation is the policy and what was seen. Found is false when there is no such policy.
type Observation struct {
	Found      bool             `json:"found"`
	Deleting   bool             `json:"deleting,omitempty"`
	Generation int64            `json:"generation"`
	Settings   storage.Settings `json:"settings"`
	// Second: another policy is in charge of this storage cluster, and the reason. Then nothing was looked at.
	Second string    `json:"second,omitempty"`
	Seen   Seen      `json:"seen"`
	At     time.Time `json:"at"`
}

// ObserveStorage takes one look at the policy, Kubernetes and the storage cluster.
func (k *Keeper) ObserveStorage(ctx context.Context, in ObserveInput) (Observation, error) {
	p, err := k.Policies.Policy(ctx, in.Cluster)
	if errors.Is(err, ErrNotFound) {
		return Observation{}, nil
	}
	if err != nil {
		return Observation{}, Unavailable("read MaintenancePolicy "+in.Cluster.String(), err)
	}
	out := Observation{Found: true, Deleting: p.Deleting, Generation: p.Generation, Settings: p.Settings, Second: p.Second}
	if p.Second != "" {
		out.Seen.View.Unavailable = "not looked at: another policy is in charge"
		return out, nil
	}
	c, err := k.Clusters.StorageCluster(ctx, in.Cluster)
	if err == nil {
		out.Seen, err = c.Observe(ctx, in.Look)
	}
	if err != nil {
		if ctx.Err() != nil {
			return Observation{}, Unavailable("observe "+in.Cluster.String(), err)
		}
		// Not to know is a reason to close, and closing must not wait for retries.
		out.Seen = Seen{View: storage.View{Unavailable: err.Error()}}
	}
	if l := in.Look; l.Bounded {
		out.Seen.View = out.Seen.View.Bounded(storage.Interest{Domains: l.Domains, Nodes: l.Nodes, Daemons: l.Daemons, Hosts: l.Hosts})
	}
	return out, nil
}

// Recall returns what the keeper before this one left in the policy's status.
func (k *Keeper) Recall(ctx context.Context, key storage.ClusterKey) (Memory, error) {
	p, err := k.Policies.Policy(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return Memory{}, nil
	}
	if err != nil {
		return Memory{}, Unavailable("read MaintenancePolicy "+key.String(), err)
	}
	return p.Memory, nil
}

// BudgetInput is what the budgets of a cluster's storage daemons and mons must say.
type BudgetInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	budget.Specs
}

// ApplyBudget makes the budgets of the storage daemons and the mons say what was decided, each by a single update.
func (k *Keeper) ApplyBudget(ctx context.Context, in BudgetInput) (BudgetResult, error) {
	r, err := k.Budgets.ApplyBudgets(ctx, in.Cluster, in.Specs)
	if err != nil {
		return BudgetResult{}, Unavailable("update the PodDisruptionBudgets", err)
	}
	return r, nil
}

// StaticBudgetsInput is what the budgets of the other daemons depend on, beside what is read when they are applied.
type StaticBudgetsInput struct {
	Cluster  storage.ClusterKey `json:"cluster"`
	Emptying []string           `json:"emptying,omitempty"` // see budget.Emptying
}

// ApplyStaticBudgets makes the budgets of the other daemons follow their replicas.
func (k *Keeper) ApplyStaticBudgets(ctx context.Context, in StaticBudgetsInput) (BudgetResult, error) {
	r, err := k.Budgets.ApplyStaticBudgets(ctx, in.Cluster, in.Emptying)
	if err != nil {
		return BudgetResult{}, Unavailable("update the static PodDisruptionBudgets", err)
	}
	return r, nil
}

// RemoveBudgets deletes every budget of ours for this policy.
func (k *Keeper) RemoveBudgets(ctx context.Context, key storage.ClusterKey) (struct{}, error) {
	if err := k.Budgets.RemoveBudgets(ctx, key); err != nil {
		return struct{}{}, Unavailable("remove PodDisruptionBudgets", err)
	}
	return struct{}{}, nil
}

// NooutInput names hosts of the storage cluster's topology, or OSDs.
type NooutInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Hosts   []string           `json:"hosts,omitempty"`
	Host    string             `json:"host,omitempty"` // the only one, in histories of v0.1
	On      bool               `json:"on"`
}

// All are the hosts.
func (in NooutInput) All() []string {
	if in.Host != "" {
		return append([]string{in.Host}, in.Hosts...)
	}
	return in.Hosts
}

// SwitchNoout sets or unsets noout on hosts. Doing so twice is the same as once.
func (k *Keeper) SwitchNoout(ctx context.Context, in NooutInput) (struct{}, error) {
	c, err := k.Clusters.StorageCluster(ctx, in.Cluster)
	if err == nil {
		if in.On {
			err = c.SetNoout(ctx, in.All()...)
		} else {
			err = c.UnsetNoout(ctx, in.All()...)
		}
	}
	if err != nil {
		return struct{}{}, Unavailable("switch noout on "+strings.Join(in.All(), ", "), err)
	}
	return struct{}{}, nil
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
