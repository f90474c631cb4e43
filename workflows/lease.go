package workflows

import (
	"time"

	"github.com/lockkeeper/lockkeeper/internal/lease"
)

// The lease between a job and the keeper. A job asks with the update RequestLease, through an activity, since only a
// client can start the keeper if it is not running; from then on the two talk by signals, which Temporal does not lose.
const (
	// UpdateRequestLease queues a claim; it answers at once. Takes a LeaseRequest.
	UpdateRequestLease = "request-lease"
	// SignalLease is what the keeper sends to a job: a LeaseNotice.
	SignalLease = "lease"
	// SignalFinishLease tells the keeper that the job's work is done: the claim goes when the domain has healed.
	SignalFinishLease = "finish-lease"
	// SignalReleaseLease gives the claim back at once.
	SignalReleaseLease = "release-lease"
	// SignalStorageChanged tells the keeper that the watcher saw a change in Kubernetes. Takes a Hint.
	SignalStorageChanged = "storage-changed"
)

// LeaseRequest is a job's claim.
type LeaseRequest struct {
	Claim lease.Claim `json:"claim"`
}

// LeaseState is where a claim stands.
type LeaseState string

// Lease states of a claim.
const (
	LeaseWaiting  LeaseState = "Waiting"
	LeaseGranted  LeaseState = "Granted"
	LeaseReserved LeaseState = "Reserved" // held, but nothing is open: the job does not have all of its leases yet
	LeaseHealing  LeaseState = "Healing"  // the job is done, its domain is not healed yet
	LeaseReleased LeaseState = "Released" // given back, the domain is healed
	LeaseParked   LeaseState = "Parked"   // taken back: its flags have expired and the data is whole without the node
	LeaseRevoked  LeaseState = "Revoked"  // taken away; ask again
)

// LeaseNotice tells a job about its claim.
type LeaseNotice struct {
	State LeaseState `json:"state"`
	// RunID is the first run of the job whose claim this is about; a later workflow of the same ID ignores it.
	RunID string `json:"runID"`
	// Ask is that of the claim. A job that claims again must not take what it is told of the claim before for an answer.
	Ask   int64 `json:"ask,omitempty"`
	Token int64 `json:"token,omitempty"`
	// Epoch is the ChangeEpoch of the storage cluster's map that a grant rests on.
	Epoch int64 `json:"epoch,omitempty"`
	// Alive is when every daemon elsewhere was last known to live, which the grant rests on, too; zero: nobody asked.
	Alive time.Time `json:"alive,omitzero"`
	// Stops is how the daemons of the job's node go, of a grant.
	Stops    lease.Stops `json:"stops,omitempty"`
	WaitsFor string      `json:"waitsFor,omitempty"`
	// Mendable: starting daemons anew elsewhere may mend that.
	Mendable bool      `json:"mendable,omitempty"`
	Since    time.Time `json:"since"`
}

// LeaseRef names a job's claim.
type LeaseRef struct {
	WorkflowID string `json:"workflowID"`
	RunID      string `json:"runID"`
	Ask        int64  `json:"ask,omitempty"`
	// NodeGone: the node will not come back, so flags must not keep the data from healing elsewhere.
	NodeGone bool `json:"nodeGone,omitempty"`
	// Next is what the job claims as soon as the claim that this names is given back, or at once if it has been; for
	// SignalFinishLease.
	Next *lease.Claim `json:"next,omitempty"`
}

// next is the claim that follows the one that r names, if there is one and it makes sense: nobody claims for others.
func (r LeaseRef) next() *lease.Claim {
	if r.Next == nil || r.Next.WorkflowID != r.WorkflowID || r.Next.RunID != r.RunID || r.Next.Ask <= r.Ask ||
		r.Next.Domain.IsZero() {
		return nil
	}
	return r.Next
}
