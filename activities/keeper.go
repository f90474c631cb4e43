// Package activities holds the thin, idempotent steps in which lockkeeper looks at the world and changes it. Each
// observes (and returns a small struct) or applies (and may be repeated at any time); none decides. What an activity
// needs from outside is a small interface declared here; the adapters in internal/ satisfy them.
package activities

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/precedence"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

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

// Memory is what a keeper has to know of the one before it: who holds the lease, and which flags are ours. It is kept
// in the policy's status, and written there before what it describes is done.
type Memory struct {
	Lease lease.State    `json:"lease"`
	Noout []budget.Noout `json:"noout,omitempty"`
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
	for _, n := range m.Noout {
		if !slices.ContainsFunc(written.Noout, n.CoveredBy) {
			return false
		}
	}
	return true
}

// Policies reads policies and writes their status.
type Policies interface {
	// Policy returns ErrNotFound when there is none.
	Policy(ctx context.Context, key storage.ClusterKey) (Policy, error)
	// ReportStatus writes the whole status and its events. A policy that is gone is no error.
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

// Budgets writes PodDisruptionBudgets.
type Budgets interface {
	// ReadBudgets reads the budgets that follow the keeper's decisions. others tells whether there are budgets in the
	// policy's namespace that are not this policy's, one of which may cover the same pods, or that have to be written anew
	// although they say what was decided.
	ReadBudgets(ctx context.Context, key storage.ClusterKey) (book budget.Book, others bool, err error)
	// ApplyBudgets makes the budgets of the storage daemons and that of the mons say what was decided. If that lets
	// anybody go, nothing is written when they have changed since in.Before was read. It returns a reason when a budget
	// that is not ours already covers the same pods, and then changes nothing there.
	ApplyBudgets(ctx context.Context, in BudgetInput) (BudgetResult, error)
	// RaiseAlarm closes all of these budgets and writes the alarm on each, whatever they say: no decision from before it
	// opens any.
	RaiseAlarm(ctx context.Context, key storage.ClusterKey, why string) error
	// ApplyStaticBudgets makes the budgets of mgr, mds, rgw and rbd-mirror follow their replicas.
	ApplyStaticBudgets(ctx context.Context, in StaticBudgetsInput) (BudgetResult, error)
	// RemoveBudgets deletes every budget of ours for this policy, and before that every mark that they count.
	RemoveBudgets(ctx context.Context, key storage.ClusterKey, progress func(done int)) error
}

// BudgetResult says what happened to a budget.
type BudgetResult struct {
	Changed bool `json:"changed,omitempty"`
	// Book is what the budgets that follow the keeper's decisions are after the write.
	Book budget.Book `json:"book,omitempty"`
	// Conflict names a budget of somebody else that covers the same pods; with two, every eviction would fail.
	Conflict string `json:"conflict,omitempty"`
	// Moved says which budget has changed since it was read. Then what was decided is not carried out.
	Moved string `json:"moved,omitempty"`
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
	// Mark marks the pods of daemons that are proved to serve while all data is whole, and takes as long as the proof
	// does.
	Mark(ctx context.Context, in Marking, beat func(Marked)) (Marked, error)
	// Unmark takes away the marks that have to go, or all.
	Unmark(ctx context.Context, in Unmarking, beat func(Marked)) (Marked, error)
	// Life asks who lives, and returns when everybody does whom the question is about, or when who does not is another
	// answer than in.Known. beat is called at every look.
	Life(ctx context.Context, in Asking, beat func()) (storage.Life, error)
	// SetNoout and UnsetNoout return the hosts that the storage cluster refuses, which it does not know by this name. All
	// others are switched then. An error means that it did not answer, and that nothing is known of any of them.
	SetNoout(ctx context.Context, hosts ...string) ([]NooutRefusal, error)
	UnsetNoout(ctx context.Context, hosts ...storage.Host) ([]NooutRefusal, error)
}

// NooutRefusal is a host on which noout could not be switched, and the storage cluster's own words.
type NooutRefusal struct {
	Host   string `json:"host"`
	Reason string `json:"reason"`
}

// StorageClusters finds the storage cluster of a policy.
type StorageClusters interface {
	StorageCluster(ctx context.Context, key storage.ClusterKey) (StorageCluster, error)
	// StorageClusterOf is that of a policy that was read already.
	StorageClusterOf(ctx context.Context, p Policy) (StorageCluster, error)
}

// Look is what an observer is asked to pay attention to, beyond what is out of order anyway.
type Look struct {
	Proof   *storage.CleanProof `json:"proof,omitempty"`
	Domains []string            `json:"domains,omitempty"` // wanted in the View, with an answer to ok-to-stop
	Nodes   []string            `json:"nodes,omitempty"`
	// Held are nodes that jobs empty, and so may be taken for leaving already.
	Held []string `json:"held,omitempty"`
	// Went are nodes that were open, and so may have gone and not be back. Over are those that have been away for a whole
	// turn.
	Went []string `json:"went,omitempty"`
	Over []string `json:"over,omitempty"`
	// Last are nodes that had their turn and did not use it, so that others go first.
	Last []string `json:"last,omitempty"`
	// Daemons and Hosts are what must have a name in the View, as have the domains and the nodes, the most important
	// first. Hosts are also wanted in View.Hosts or View.Gone.
	Daemons []string       `json:"daemons,omitempty"`
	Hosts   []storage.Host `json:"hosts,omitempty"`
	// Commit has the storage cluster's governors commit something before they are asked who they are. Then View.Committed
	// tells whether they did.
	Commit bool `json:"commit,omitempty"`
	// Bounded: the asker can do with a View that names only so many, and counts the others.
	Bounded bool `json:"bounded,omitempty"`
	// Machines are UIDs of Machines of which the Survey has to say whether they are there.
	Machines []string `json:"machines,omitempty"`
	// Hosting asks for Seen.Hosting.
	Hosting bool `json:"hosting,omitempty"`
	// LastChange and Departed are the ChangeEpoch and the Departed of the last View that could be had.
	LastChange int64            `json:"lastChange,omitempty"`
	Departed   storage.Departed `json:"departed,omitempty"`
}

// Seen is what one look saw.
type Seen struct {
	View storage.View `json:"view"`
	// Kind is which guard judges what was seen, and Own what it judges by beside the View, in words of its kind alone. It
	// is bounded in size: a summary, never a list of all that there is.
	Kind storage.Kind    `json:"kind,omitempty"`
	Own  json.RawMessage `json:"own,omitempty"`
	// ID is the storage cluster's own, by which it is told from others; "": it told none.
	ID string `json:"id,omitempty"`
	// Hosting is what every node hosts, if that was asked for and is known. Homeless: a daemon is up of which no node is
	// known any more.
	Hosting  map[string]fencing.Hosted `json:"-"`
	Homeless bool                      `json:"-"`
}

// Watched is what a watcher last knew.
type Watched struct {
	Health      storage.Health `json:"health"`
	Quorum      Quorum         `json:"quorum"`
	Unavailable string         `json:"unavailable,omitempty"`
	// Fingerprint stands for everything else whose change must be looked at: which daemons are up, flags, pools.
	Fingerprint string `json:"fingerprint"`
	// Noout are the hosts with noout, in order; nil: there are too many. Unflagged is Fingerprint without them.
	Noout     []string `json:"noout"`
	Unflagged string   `json:"unflagged,omitempty"`
	// Lived is how long ago, at the most, every daemon that is up was seen to have reported anew, and ReportPeriod the
	// time between two reports. ReportPeriod 0: neither is known. LivedFor is for how long that counts; 0, of an older
	// worker: a period and a quarter.
	Lived        time.Duration `json:"lived,omitempty"`
	LivedFor     time.Duration `json:"livedFor,omitempty"`
	ReportPeriod time.Duration `json:"reportPeriod,omitempty"`
	// At is when it was known, by the clock of Temporal's server.
	At time.Time `json:"at,omitzero"`
}

// News tells whether anything changed that a decision depends on.
func (w Watched) News(last Watched) bool {
	return w.Fingerprint != last.Fingerprint || w.moved(last)
}

// OnlyNoout tells whether nothing changed but noout, and whether these are the hosts that carry it now.
func (w Watched) OnlyNoout(last Watched, now []string) bool {
	return w.Unflagged != "" && w.Unflagged == last.Unflagged && !w.moved(last) &&
		w.Noout != nil && slices.Equal(w.Noout, now)
}

// moved tells whether anything changed that is not in the fingerprint.
func (w Watched) moved(last Watched) bool {
	a, b := last.Health, w.Health
	return last.Unavailable != w.Unavailable ||
		a.Fresh != b.Fresh || a.Clean != b.Clean || a.ChangeEpoch != b.ChangeEpoch ||
		!slices.Equal(a.Unexplained, b.Unexplained) ||
		!slices.Equal(last.Quorum.Mons, w.Quorum.Mons) || !slices.Equal(last.Quorum.In, w.Quorum.In)
}

// Watching is what a watcher begins with.
type Watching struct {
	Last Watched `json:"last"`
	// Doubted is when something happened of which the storage cluster may not have heard yet. What was proved before that
	// does not count; the zero time: nothing did.
	Doubted time.Time `json:"doubted,omitzero"`
}

// Asking is the question which daemons live.
type Asking struct {
	Outside storage.FailureDomain `json:"outside,omitzero"` // its own daemons do not matter
	Known   *storage.Life         `json:"known,omitempty"`  // the answer before, when somebody was silent
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
	Machines Machines
	// Mons and Migrations are how those who look after the mons hear of one that is out of quorum; nil: nobody does.
	Mons       Mons
	Migrations Migrations

	told sync.Map // by storage.ClusterKey: toldMons
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
	UID        string           `json:"uid,omitempty"`
	Generation int64            `json:"generation"`
	Settings   storage.Settings `json:"settings"`
	// Second: another policy is in charge of this storage cluster, and the reason. Then nothing that was seen counts.
	Second string `json:"second,omitempty"`
	// SecondElsewhere: the other policy is of another namespace, so its budgets cover none of this one's pods.
	SecondElsewhere bool `json:"secondElsewhere,omitempty"`
	// Claim is what the policy's status said before the look; nil: the worker that looked did not know of claims.
	Claim *precedence.Claim `json:"claim,omitempty"`
	Seen  Seen              `json:"seen"`
	// Book is what was read of the budgets before the look. OtherBudgets: there were some of somebody else, too.
	Book         budget.Book `json:"book,omitempty"`
	OtherBudgets bool        `json:"otherBudgets,omitempty"`
	// Survey is what there is to know of Machines; nil: the policy does not ask for that.
	Survey *fencing.Survey `json:"survey,omitempty"`
}

// ObserveStorage takes one look at the policy, Kubernetes and the storage cluster. It ends before its time is over, and
// so says who did not answer.
func (k *Keeper) ObserveStorage(ctx context.Context, in ObserveInput) (Observation, error) {
	ctx, stop := endsInTime(ctx)
	defer stop()
	var (
		out      Observation
		unread   error
		together sync.WaitGroup
	)
	// Before the look: an alarm that is raised during it changes them.
	together.Go(func() { out.Book, out.OtherBudgets, unread = k.Budgets.ReadBudgets(ctx, in.Cluster) })
	p, err := k.Policies.Policy(ctx, in.Cluster)
	together.Wait()
	if errors.Is(err, ErrNotFound) {
		return Observation{}, nil
	}
	if err != nil {
		return Observation{}, Unavailable("read MaintenancePolicy "+in.Cluster.String(), err)
	}
	out.Found, out.Deleting, out.Settings = true, p.Deleting, p.Settings
	out.UID, out.Generation = p.UID, p.Generation
	out.Second, out.Claim = p.Second, &p.Memory.Claim
	if p.Second != "" {
		out.Seen.View.Unavailable = "not looked at: another policy is in charge"
		return out, nil
	}
	if unread != nil && !p.Deleting { // the end needs no look
		return Observation{}, Unavailable("read the PodDisruptionBudgets", unread)
	}
	var listed *surveying
	if spec, _ := fencingOf(p); spec != nil {
		in.Look.Hosting = true
		together.Go(func() { listed = k.listMachines(ctx, p) })
	}
	c, err := k.Clusters.StorageClusterOf(ctx, p)
	if err == nil {
		out.Seen, err = c.Observe(ctx, in.Look)
	}
	together.Wait()
	if err != nil {
		if ctx.Err() != nil {
			return Observation{}, Unavailable("observe "+in.Cluster.String(), err)
		}
		// Not to know is a reason to close, and closing must not wait for retries.
		out.Seen = Seen{View: storage.View{Unavailable: err.Error(), Cause: storage.CauseOf(err)}}
	}
	switch s := p.Standing(out.Seen.ID); {
	case s.First != "":
		out.Second, out.SecondElsewhere = s.First, s.Key.Namespace != in.Cluster.Namespace
		out.Seen.View = storage.View{Unavailable: "not looked at: another policy is in charge"}
	default:
		out.Seen.View.NotInCharge = s.Waits
	}
	out.Survey = listed.survey(p, out.Seen, in.Look)
	if l := in.Look; l.Bounded {
		first := storage.Interest{Domains: l.Domains, Nodes: l.Nodes, Daemons: l.Daemons}
		for _, h := range l.Hosts {
			first.Hosts = append(first.Hosts, h.Name)
		}
		out.Seen.View = out.Seen.View.Bounded(first)
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

// NooutInput names hosts of the storage cluster's topology, or OSDs.
type NooutInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Hosts   []string           `json:"hosts,omitempty"`
	On      bool               `json:"on"`
	// IDs are those hosts whose ID is known, so that one that was renamed is found.
	IDs map[string]int `json:"ids,omitempty"`
}

// NooutResult is what became of a SwitchNoout that the storage cluster answered.
type NooutResult struct {
	// Refused are hosts on which nothing was switched. It was on all others.
	Refused []NooutRefusal `json:"refused,omitempty"`
	// Unsure: an attempt before this one got no answer, and may still be carried out.
	Unsure bool `json:"unsure,omitempty"`
}

// SwitchNoout sets or unsets noout on hosts. Doing so twice is the same as once.
func (k *Keeper) SwitchNoout(ctx context.Context, in NooutInput) (out NooutResult, err error) {
	c, err := k.Clusters.StorageCluster(ctx, in.Cluster)
	if err == nil {
		if in.On {
			out.Refused, err = c.SetNoout(ctx, in.Hosts...)
		} else {
			var hosts []storage.Host
			for _, name := range in.Hosts {
				hosts = append(hosts, storage.Host{Name: name, ID: in.IDs[name]})
			}
			out.Refused, err = c.UnsetNoout(ctx, hosts...)
		}
	}
	if err != nil {
		return NooutResult{}, Unavailable("switch noout on "+strings.Join(in.Hosts, ", "), err)
	}
	out.Unsure = activity.IsActivity(ctx) && activity.GetInfo(ctx).Attempt > 1
	return out, nil
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
