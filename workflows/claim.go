package workflows

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is what a job knows of its claim to the lease, and what each word of the keeper makes of that. It is pure:
// the talk itself is in claimant.go.

// claimStage is where a claim stands, as far as its job knows.
type claimStage string

const (
	claimFree  claimStage = ""      // there is no claim
	claimAsked claimStage = "Asked" // the keeper may know of it, and has not granted it
	// claimUnsure: it has to be asked for, since that was not done yet, or since it was to follow the claim before and the
	// keeper has not said that it does.
	claimUnsure claimStage = "Unsure"
	// claimReserved: it is granted, but nothing opens for it until the job has all of its leases.
	claimReserved claimStage = "Reserved"
	claimHeld     claimStage = "Held" // it is granted, with a token
	claimDone     claimStage = "Done" // the work is done, which the keeper is about to be told
	claimTold     claimStage = "Told" // the keeper was told that the work is done, and perhaps what is wanted next
)

// ClaimState is a job's claim. A job hands it on to its next run.
type ClaimState struct {
	Cluster storage.ClusterKey `json:"cluster"`
	Stage   claimStage         `json:"stage,omitempty"`
	Claim   lease.Claim        `json:"claim"`
	Token   int64              `json:"token,omitempty"` // of the grant
	Epoch   int64              `json:"epoch,omitempty"` // of the storage cluster's map that the grant rests on
	Alive   time.Time          `json:"alive,omitzero"`  // when all daemons elsewhere were last known to live
	Stops   lease.Stops        `json:"stops,omitempty"` // how the daemons of the node go, as of the grant
	// NodeGone: the node will not come back, so that flags must not keep its data from moving.
	NodeGone bool `json:"nodeGone,omitempty"`
	// Next is what the keeper was told to take for the claim when it takes this one back. It is never changed: nobody
	// could tell whether it has become the claim already.
	Next *lease.Claim `json:"next,omitempty"`
	// Ended is how the claim before ended, if there is none.
	Ended LeaseState `json:"ended,omitempty"`
	// Why the claim is not granted, or the storage not whole, as far as the job was told.
	Why string `json:"why,omitempty"`
	// Mendable: starting daemons anew elsewhere may mend that.
	Mendable bool `json:"mendable,omitempty"`
	// Reminders in a row that brought no word of the keeper.
	Reminders int `json:"reminders,omitempty"`
}

// held tells whether the lease is held, and its work is not done.
func (c *ClaimState) held() bool { return c.Stage == claimHeld }

// parked tells whether the lease was taken back because the data is whole without the node.
func (c *ClaimState) parked() bool { return c.Stage == claimFree && c.Ended == LeaseParked }

// finished tells whether the work is done and the lease is not back yet.
func (c *ClaimState) finished() bool { return c.Stage == claimDone || c.Stage == claimTold }

// covers tells whether the lease is held for this failure domain and all of these daemons, or held in reserve if no
// more is wanted.
func (c *ClaimState) covers(want lease.Claim) bool {
	has := c.held() || c.Stage == claimReserved && want.Reserved() && !want.Ready
	return has && c.Claim.Domain == want.Domain && !slices.ContainsFunc(want.Daemons, func(daemon string) bool {
		return !c.Claim.Concerns(storage.Daemon{Name: daemon})
	})
}

// waitsFor tells whether exactly this was asked for, and is not granted yet.
func (c *ClaimState) waitsFor(want lease.Claim) bool {
	return c.queued() && c.Claim.Domain == want.Domain &&
		c.Claim.Ready == want.Ready && slices.Equal(c.Claim.Daemons, want.Daemons)
}

// queued tells whether a claim was made and is not granted yet.
func (c *ClaimState) queued() bool { return c.Stage == claimAsked || c.Stage == claimUnsure }

// begin makes a claim that is about to be asked for.
func (c *ClaimState) begin(claim lease.Claim) {
	*c = ClaimState{Cluster: c.Cluster, Stage: claimAsked, Claim: claim}
}

// end: there is no claim any more.
func (c *ClaimState) end(how LeaseState) {
	c.Stage, c.Token, c.Next, c.Ended = claimFree, 0, nil, how
}

// take takes in what the keeper said, and tells whether it is about this claim or about the next one, which then is the
// claim. What it said of a claim before may come late; to take that grant for this one's would be to act under a token
// that does not count any more.
func (c *ClaimState) take(n LeaseNotice) bool {
	switch {
	case c.Stage == claimFree || n.RunID != c.Claim.RunID:
		return false
	case n.Ask == c.Claim.Ask:
	case c.Next != nil && n.Ask == c.Next.Ask:
		c.begin(*c.Next)
	default:
		return false
	}
	c.Mendable = n.Mendable
	switch n.State {
	case LeaseGranted:
		if !c.finished() {
			c.Stage, c.Token, c.Epoch, c.Alive, c.Stops, c.Why = claimHeld, n.Token, n.Epoch, n.Alive, n.Stops, ""
		}
	case LeaseReserved:
		switch {
		case c.held() || c.finished():
		case !c.Claim.Ready:
			c.Stage, c.Why = claimReserved, ""
		default: // it was said before the keeper heard that the job is ready, or the storage does not allow it yet
			if c.Why = n.WaitsFor; c.Stage == claimUnsure {
				c.Stage = claimAsked
			}
		}
	case LeaseWaiting:
		if c.Why = n.WaitsFor; c.Stage == claimUnsure {
			c.Stage = claimAsked
		}
	case LeaseReleased, LeaseParked, LeaseRevoked:
		next := c.Next
		if c.end(n.State); next != nil { // it is over, or nearly so, that the keeper learns what is wanted next
			c.begin(*next)
			c.Stage = claimUnsure
		}
	case LeaseHealing:
		c.Why = n.WaitsFor
	}
	return true
}
