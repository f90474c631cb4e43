package workflows

import (
	"encoding/json"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/doubt"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what a keeper starts with, knows, tells and leaves.

// KeeperInput starts the keeper of one storage cluster, or goes on with its state after continue-as-new.
type KeeperInput struct {
	Cluster storage.ClusterKey `json:"cluster"`
	State   *KeeperState       `json:"state,omitempty"`
	// Protocol is how the keeper shares the pods between its budgets: see keeperProtocol. Workers that do not know the
	// field refuse the input, so that no keeper of version 0.1 goes on where a newer one has marked pods.
	Protocol int `json:"protocol,omitempty"`

	invalid *input.Error // found while decoding
}

// keeperProtocol 2: two budgets over the storage daemons, split by the marks on their pods. Version 0.1 had one budget.
const keeperProtocol = 2

// NewKeeperInput is how to start the keeper of a storage cluster.
func NewKeeperInput(cluster storage.ClusterKey) KeeperInput {
	return KeeperInput{Cluster: cluster, Protocol: keeperProtocol}
}

// KeeperState is what a keeper knows. Lease and flags are also in the policy's status, so that a keeper that was
// terminated is followed by one that still knows them; the rest it can find out again.
type KeeperState struct {
	Memory  activities.Memory  `json:"memory"`
	Watched activities.Watched `json:"watched"`
	// Kind is the kind of storage that was seen last.
	Kind storage.Kind `json:"kind,omitempty"`
	budget.Remembered
	LastChange int64            `json:"lastChange,omitempty"` // ChangeEpoch of the last View
	Departed   storage.Departed `json:"departed,omitempty"`   // the last View's
	Silent     time.Time        `json:"silent,omitzero"`      // when a look last got no answer that counts, or the first was taken
	SilentAsOf int64            `json:"silentAsOf,omitempty"` // LastChange before that; 0: not known
	Decision   budget.Decision  `json:"decision"`
	Since      time.Time        `json:"since"` // of Decision
	Conflict   string           `json:"conflict,omitempty"`
	// Doubts are what has happened that facts may be older than.
	Doubts doubt.State `json:"doubts,omitzero"`
	// WatchedAsOf is as of which doubt Watched is.
	WatchedAsOf doubt.Seq `json:"watchedAsOf,omitempty"`
	// Applied is the decision that the budgets say now, as of AppliedAsOf; nil when that is not known.
	Applied     *budget.Decision `json:"applied,omitempty"`
	AppliedAsOf doubt.Seq        `json:"appliedAsOf,omitempty"`
	// Settled: nothing that lets pods go is on its way to the API server. Of a keeper before this one nobody knows that.
	Settled bool `json:"settled,omitempty"`
	// AppliedBook is what the budgets were after the last write.
	AppliedBook budget.Book `json:"appliedBook,omitempty"`
	// Life is the last answer to the question who lives, Answered when it came, and LifeAsOf as of which doubt it is; nil:
	// there is none.
	Life     *storage.Life `json:"life,omitempty"`
	Answered time.Time     `json:"answered,omitzero"`
	LifeAsOf doubt.Seq     `json:"lifeAsOf,omitempty"`
	// Lived is when every daemon was last known to live because of a proof of whole data, for how long that counts, and as
	// of which doubt it is.
	Lived     time.Time     `json:"lived,omitzero"`
	LivedFor  time.Duration `json:"livedFor,omitempty"`
	LivedAsOf doubt.Seq     `json:"livedAsOf,omitempty"`
	// ReportPeriod is the time between two reports of a daemon, as last learned.
	ReportPeriod time.Duration `json:"reportPeriod,omitempty"`
	// Manages: the budgets were lockkeeper's to write at the last look. Nobody has looked yet when the next run begins.
	Manages bool `json:"manages,omitempty"`
	// Reported is the last report that was written, Released who has to be told of a release.
	Reported activities.Report `json:"reported"`
	Released []lease.Claim     `json:"released,omitempty"`
	// RememberedAsReported: Reported.Memory is the same as Memory, and left out.
	RememberedAsReported bool `json:"rememberedAsReported,omitempty"`
	// Told is the last notice to each claim, by the first run of its job.
	Told map[string]Told `json:"told,omitempty"`
	// FencesTold is the last notice about each case of fencing, by the first run of its job; FencesOver are cases that are
	// over and of which the job has not heard yet.
	FencesTold map[string]Told `json:"fencesTold,omitempty"`
	FencesOver []fencing.Case  `json:"fencesOver,omitempty"`
	// Overridden is since when pods may go out of turn, by their UIDs.
	Overridden map[string]time.Time `json:"overridden,omitempty"`
}

// KeeperStatus answers the query "status".
type KeeperStatus struct {
	Cluster  storage.ClusterKey `json:"cluster"`
	Decision budget.Decision    `json:"decision"`
	Since    time.Time          `json:"since"`
	Lease    lease.State        `json:"lease"`
	FlagStatus
	View   storage.View    `json:"view"`
	Kind   storage.Kind    `json:"kind,omitempty"`
	Own    json.RawMessage `json:"own,omitempty"`
	Health storage.Health  `json:"health"`
	Clean  bool            `json:"clean"`
	// Known is what else the keeper judges by; nil: its worker is too old to tell.
	Known *budget.Known `json:"known,omitempty"`
	// Trouble is what the keeper could not do at its last attempt, and will try again.
	Trouble   string    `json:"trouble,omitempty"`
	NextTimer time.Time `json:"nextTimer,omitzero"`
	Conflict  string    `json:"conflict,omitempty"`
	// Unmoved is why data could not be moved away from nodes that are to be removed; "": it was, or there is none.
	Unmoved string `json:"unmoved,omitempty"`
	// ReportPeriod is the time between two reports of a daemon, and LivedFor for how long one counts as a sign of life; 0:
	// not known.
	ReportPeriod time.Duration `json:"reportPeriod,omitempty"`
	LivedFor     time.Duration `json:"livedFor,omitempty"`
	// Fencing is which Machines are held, and which nodes are to be fenced; Machines what the last look found; nil: the
	// policy names no fencing.
	Fencing  *fencing.Ledger `json:"fencing,omitempty"`
	Machines *fencing.Survey `json:"machines,omitempty"`
}

// KeeperResult is what a keeper leaves when its policy is gone.
type KeeperResult struct {
	// Left is what could not be undone, and LeftBecause why that was given up.
	Left        []string `json:"left,omitempty"`
	LeftBecause string   `json:"leftBecause,omitempty"`
}

// Input is what the keeper judges by, as of now.
func (s KeeperStatus) Input(now time.Time) budget.Input {
	return s.Known.Input(now, s.View, s.Health, s.Lease)
}
