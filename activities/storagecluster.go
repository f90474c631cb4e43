package activities

import (
	"context"
	"encoding/json"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is a storage cluster as the keeper knows it: what it asks, and what it is told.

// StorageClusters finds the storage cluster of a policy.
type StorageClusters interface {
	StorageCluster(ctx context.Context, key storage.ClusterKey) (StorageCluster, error)
	// StorageClusterOf is that of a policy that was read already.
	StorageClusterOf(ctx context.Context, p Policy) (StorageCluster, error)
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
	// SetFlag and UnsetFlag return the hosts that the storage cluster refuses, which it does not know by this name. All
	// others are switched then. An error means that it did not answer, and that nothing is known of any of them.
	SetFlag(ctx context.Context, hosts ...string) ([]FlagRefusal, error)
	UnsetFlag(ctx context.Context, hosts ...storage.Host) ([]FlagRefusal, error)
}

// Quorum is the mons of a Ceph cluster, by name.
type Quorum struct {
	Mons []string `json:"mons,omitempty"`
	In   []string `json:"in,omitempty"`
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
	// Hosting is what every node hosts, if that was asked for; by its pods while the storage cluster is silent. Homeless:
	// a daemon is up of which no node is known any more.
	Hosting  map[string]fencing.Hosted `json:"-"`
	Homeless bool                      `json:"-"`
}
