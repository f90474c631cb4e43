package budget

import "github.com/lockkeeper/lockkeeper/internal/storage"

// Mode is how far voluntary disruption is open.
type Mode string

// The modes.
const (
	ModeDefault Mode = "Default"
	ModeOpen    Mode = "Open"
	ModeClosed  Mode = "Closed"
)

// Reasons, as they appear in status, conditions and events.
const (
	ReasonClean              = "Clean"              // at rest
	ReasonLeaseHeld          = "LeaseHeld"          // a job holds the lease of the open domain
	ReasonAnnounced          = "CordonAnnounced"    // a node of the open domain was cordoned
	ReasonDisrupted          = "DomainDisrupted"    // daemons of the open domain are down
	ReasonPGHealthTimeout    = "PGHealthTimeout"    // unclean for longer than the policy waits
	ReasonStorageUnavailable = "StorageUnavailable" // the storage cluster does not answer
	ReasonProblem            = "Inconsistent"       // what Kubernetes and the storage cluster say does not fit together
	ReasonIntolerant         = "PoolIntolerant"     // a pool cannot lose a failure domain
	ReasonDownElsewhere      = "DownElsewhere"      // daemons of several failure domains are down
	ReasonNotProvenClean     = "NotProvenClean"     // the PGs are not known to be clean as of the last change
	ReasonRefusedByStorage   = "NotOKToStop"        // ok-to-stop said no
	ReasonMonQuorum          = "MonQuorum"          // a mon is out, and all others are needed
	ReasonNoSignOfLife       = "NoSignOfLife"       // a daemon that is up has not reported since it was asked
	ReasonDisconnected       = "OSDsDisconnected"   // a daemon that is up has no connection to the monitors
	// Kubernetes has lost a node whose daemons are up by the storage cluster's word
	ReasonNodeNotReady = "NodeNotReady"
	ReasonLeaving      = "NodeLeaving" // a node is leaving, and nothing depends on it
	ReasonUnmanaged    = "Unmanaged"   // the policy switched the budgets off
	ReasonDeleting     = "Deleting"    // the policy is deleted, and something is not undone yet
	// another policy may look after the same storage cluster, which is not settled yet
	ReasonNotInCharge  = "NotInCharge"
	ReasonSecondPolicy = "SecondPolicy" // another policy looks after the same storage cluster, and was first
)

// Decision is the wanted state, and why.
type Decision struct {
	Mode Mode                  `json:"mode"`
	Open storage.FailureDomain `json:"open,omitzero"`
	// Shut is the failure domain of a fence that may take its node although nothing opens for it: its daemons are to end
	// anyway. Zero: there is none.
	Shut storage.FailureDomain `json:"shut,omitzero"`
	// With are further failure domains that are open: on the same node, and Ceph says that all may stop at once.
	With    []string `json:"with,omitempty"`
	Reason  string   `json:"reason"`
	Message string   `json:"message"`
	// Budget is what the PodDisruptionBudget of the storage daemons' marked pods must say, Unproved that of the others,
	// Mons that of the mons; nil: none. Keepers of version 0.1 have no Unproved: Budget is for all pods.
	Budget   Spec  `json:"budget"`
	Unproved *Spec `json:"unproved,omitempty"`
	Mons     *Spec `json:"mons,omitempty"`
	// Answer is what is said to who asks where he may drain, if it is another than the mode alone tells.
	Answer string `json:"answer,omitempty"`
	// Announcement is the node whose cordon opened the domain, if that is the reason.
	Announcement string `json:"announcement,omitempty"`
}

// Going are the mons that a decision lets go.
func (d *Decision) Going() []string {
	if d == nil || d.Mons == nil {
		return nil
	}
	return d.Mons.Except
}

// Specs is what the budgets say that a decision is about.
type Specs struct {
	Daemons  Spec  `json:"daemons"`            // of the marked pods
	Unproved *Spec `json:"unproved,omitempty"` // of the others; nil: Daemons is for all
	Mons     *Spec `json:"mons,omitempty"`     // nil: no budget
}

// Specs of a decision.
func (d Decision) Specs() Specs { return Specs{Daemons: d.Budget, Unproved: d.Unproved, Mons: d.Mons} }

// LetsGo tells whether anybody may be evicted under these budgets, once the pods are as they should be.
func (s Specs) LetsGo() bool {
	lets := func(x *Spec) bool { return x != nil && !x.Quiet && (x.MinAvailable < Everything || len(x.Except) > 0) }
	return lets(&s.Daemons) || lets(s.Unproved) || lets(s.Mons)
}

// Spec is one PodDisruptionBudget.
type Spec struct {
	// MinAvailable is an integer and never a maxUnavailable: a budget that derives its expectation from the pods that
	// exist shrinks with every eviction, and for some milliseconds allows one more (facts: 13 ms).
	MinAvailable int `json:"minAvailable"`
	// Quiet: none may go, and the budget says so as maxUnavailable: 0. With MinAvailable it would have to say a number
	// that no pods satisfy, and alerts take that for pods that are missing. For rest only: while a workload is being
	// scaled to 0, it lends an eviction for as long as the workload's pod is there (some milliseconds), if another pod is
	// under the same budget.
	Quiet bool `json:"quiet,omitempty"`
	// The budget leaves out pods whose label Key has one of Except. A pod without the label stays protected.
	Key    string   `json:"key,omitempty"`
	Except []string `json:"except,omitempty"`
}

// Everything is a MinAvailable that no number of pods satisfies, so that nobody may go. The number of daemons would not
// do: it is not known when the storage cluster does not answer, and a pod too many (a new daemon's, a second one while
// one is replaced) would lend one eviction.
const Everything = 1_000_000
