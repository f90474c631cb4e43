package storage

import "time"

// AtRest is what may be evicted while all is well and no failure domain is open.
type AtRest string

// What may go at rest.
const (
	AtRestOne  AtRest = "One"  // one daemon, anywhere
	AtRestNone AtRest = "None" // none: only a cordon or a job opens a failure domain
)

// Settings are the parts of a MaintenancePolicy that decisions depend on.
type Settings struct {
	ManagePodBudgets   bool          `json:"managePodBudgets"`
	AtRest             AtRest        `json:"atRest,omitempty"`   // "": One
	MaintenanceTimeout time.Duration `json:"maintenanceTimeout"` // how long a noout of ours may last
	// how long unclean PGs hold everything back; 0: for ever
	PGHealthCheckTimeout time.Duration `json:"pgHealthCheckTimeout"`
	// how long a cordon keeps its domain open before anything goes down; where nodes take turns, how long one that is
	// leaving keeps its own while others wait for it
	AnnouncementTimeout time.Duration `json:"announcementTimeout"`
	// RemovalTaintExpiry is the age from which an autoscaler's removal taint does not count; 0: an hour.
	RemovalTaintExpiry time.Duration `json:"removalTaintExpiry,omitempty"`
	// DetachOnCordon: what somebody attached by hand to a node that is leaving is detached from it.
	DetachOnCordon bool `json:"detachOnCordon,omitempty"`
	// EvictOnRemoval: data that would keep a node which is about to be removed is moved to other nodes.
	EvictOnRemoval bool `json:"evictOnRemoval,omitempty"`
	// one or two mons may go although there is no quorum without them
	AllowMonQuorumLoss bool `json:"allowMonQuorumLoss,omitempty"`
	// Fencing is what fences nodes; nil: nothing is held back.
	Fencing *Fencing `json:"fencing,omitempty"`
	// RemediationTimeout is how long a remediator may take for a Machine that is released to it.
	RemediationTimeout time.Duration `json:"remediationTimeout,omitempty"`
}

// Fencing says what fences nodes, and how its Machines are held.
type Fencing struct {
	API       string `json:"api"`
	Namespace string `json:"namespace,omitempty"` // of the Machines
	Hold      string `json:"hold,omitempty"`
}
