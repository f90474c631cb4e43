// Package fencing decides which Machine may be fenced, and which Machines are held back meanwhile. It is pure: what it
// is told was observed, and what it answers is applied by others.
//
// To fence a node is to delete its Machine or to reboot it, which a remediator does: a health check of Cluster API or
// of OpenShift, or a person who deletes a Machine. lockkeeper never fences. It holds the Machines that the data relies
// on, and releases one at a time.
//
// A Machine is released for one of two reasons. Either nothing runs on its node any more, so that fencing takes nothing
// from anybody: that waits for no lease. Or its failure domain is open for it, as for a drain.
package fencing

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Why a node is to be fenced.
type Why string

// The reasons to fence a node.
const (
	// WhyUnhealthy: the node meets a condition of its health check, for as long as that wants.
	WhyUnhealthy Why = "Unhealthy"
	// WhyDeleting: its Machine is being deleted, by a person, a rollout or a scale-down, or by a health check whose
	// node has recovered since. A deletion is not taken back.
	WhyDeleting Why = "Deleting"
	// WhyRecovered: neither, any more.
	WhyRecovered Why = "Recovered"
)

// Priority is that of a claim to the lease for a fence: a node that failed goes before drains, a removal that somebody
// planned is one.
func (w Why) Priority() lease.Priority {
	if w == WhyUnhealthy {
		return lease.PriorityFencing
	}
	return lease.PriorityDrain
}

// Target is a node whose Machine is to be released.
type Target struct {
	Node  string    `json:"node"`
	Why   Why       `json:"why"`
	Since time.Time `json:"since"` // when it met the condition, or its deletion began
	// WorkflowID and RunID are those of the job that claims the lease for it.
	WorkflowID string `json:"workflowID,omitempty"`
	RunID      string `json:"runID,omitempty"`
	// DisksGo: the data of its daemons is on disks that go with the Machine. A Machine that is rebooted keeps them, and
	// so does one whose daemons' volumes can be attached elsewhere.
	DisksGo bool `json:"disksGo,omitempty"`
	// Override is a person's word that the Machine is to be released whatever is known.
	Override *Override `json:"override,omitempty"`
	// InReserve: another storage cluster has to release the Machine first. See InReserve. It is not kept in the policy's
	// status: a keeper that has forgotten it lets go out of order, which costs a timeout at most.
	InReserve bool `json:"inReserve,omitempty"`
}

// Override is who released a Machine by hand, when and why.
type Override struct {
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// Facts is what is known of one storage cluster when a release is judged.
type Facts struct {
	// View is one look. It must have been asked about the nodes in AskedFor: of others it says nothing when all is
	// well.
	View     storage.View
	AskedFor []string
	// Clean: the data is proved whole as of everything in View.
	Clean bool
	// Hurt are the failure domains whose missing daemons the data feels.
	Hurt  []storage.FailureDomain
	Lease lease.State
	// Open is the failure domain in which disruption is open, Shut that of a fence for which nothing opens since it takes
	// only what is to end anyway.
	Open, Shut storage.FailureDomain
	// Released are the nodes whose Machines are released and still there.
	Released []string
	// MonsToEnd are mons of nodes that are lost and held back, which are in quorum, in pods that are to end: they do when
	// the control plane is reached again.
	MonsToEnd []string
	// MonsGoing are mons that their budget lets go.
	MonsGoing []string
	// Silent is when the storage cluster last gave no answer that counts, by the clock of View.At; zero: never.
	Silent time.Time
	// SilentAsOf is the ChangeEpoch of the last answer before that; 0: not known.
	SilentAsOf int64
}

// Know is what a keeper's input and decision say.
func Know(in budget.Input, d budget.Decision, askedFor, released []string) Facts {
	f := Facts{
		View: in.View, AskedFor: askedFor, Clean: budget.Clean(in), Lease: in.Lease, Open: d.Open, Shut: d.Shut,
		Released: released,
	}
	if d.Mons != nil {
		f.MonsGoing = d.Mons.Except
	}
	for _, domain := range budget.Affected(in) {
		f.Hurt = append(f.Hurt, storage.FailureDomain{Type: in.View.FailureDomainType, Name: domain.Name})
	}
	return f
}

// Takes is what a node's fence would take from the storage cluster.
type Takes struct {
	Hosts   int                     `json:"hosts"`             // daemons on the node, running or not
	Running []string                `json:"running,omitempty"` // those that serve, or may serve
	Mon     string                  `json:"mon,omitempty"`     // a mon in quorum
	Domains []storage.FailureDomain `json:"domains,omitempty"` // of its daemons
	// Unnamed are daemons of the node of which the look named none, so that nobody can tell whether they serve.
	Unnamed int `json:"unnamed,omitempty"`
}

// Nothing tells whether nothing that serves would go.
func (t Takes) Nothing() bool { return len(t.Running) == 0 && t.Mon == "" && t.Unnamed == 0 }

// Takes finds out what fencing a node would take. A daemon counts as down by the storage cluster's map alone: a pod
// that is said to run on a lost node says nothing, and one that is leaving may serve to its last moment.
func (f Facts) Takes(node string) Takes {
	var t Takes
	for _, m := range f.View.Mons {
		if m.Node == node && m.InQuorum {
			t.Mon = m.Name
		}
	}
	n, ok := f.View.Node(node)
	if !ok {
		return t
	}
	hosted, _ := n.Counts()
	t.Hosts, t.Unnamed = hosted, n.MoreDaemons
	names := n.Domains
	if len(names) == 0 && n.Domain != "" {
		names = []string{n.Domain}
	}
	for _, name := range names {
		t.Domains = append(t.Domains, storage.FailureDomain{Type: f.View.FailureDomainType, Name: name})
	}
	for _, name := range n.Daemons {
		if !f.down(name) {
			t.Running = append(t.Running, name)
		}
	}
	return t
}

// down tells whether the map says that a daemon is down.
func (f Facts) down(name string) bool {
	x, troubled := f.troubled(name)
	return troubled && !x.Up
}

// downAt is the ChangeEpoch at which a daemon was called down; 0: nobody knows.
func (f Facts) downAt(name string) int64 {
	x, _ := f.troubled(name)
	return x.DownAt
}

func (f Facts) troubled(name string) (storage.Daemon, bool) {
	for _, d := range f.View.AllDomains() {
		for _, x := range d.Troubled {
			if x.Name == name {
				return x, true
			}
		}
	}
	return storage.Daemon{}, false
}

// quorumWithout is how many mons stay in quorum without those that are taken, and those that go anyway, and how many
// have to. Mons that are to end do not count, but for each other: of these one has to be the first.
func (f Facts) quorumWithout(taken func(storage.Mon) bool, going []string) (left, need int) {
	toEnd := slices.ContainsFunc(f.View.Mons, func(m storage.Mon) bool {
		return taken(m) && slices.Contains(f.MonsToEnd, m.Name)
	})
	for _, m := range f.View.Mons {
		stays := !taken(m) && !slices.Contains(going, m.Name)
		if stays && (m.Standing() || toEnd && slices.Contains(f.MonsToEnd, m.Name)) {
			left++
		}
	}
	return left, quorum.Majority(len(f.View.Mons))
}

func (f Facts) hurtElsewhere(domains []storage.FailureDomain) (storage.FailureDomain, bool) {
	for _, d := range f.Hurt {
		if !slices.Contains(domains, d) {
			return d, true
		}
	}
	return storage.FailureDomain{}, false
}

// holder is who holds the lease, if that is not the target's job.
func (f Facts) holder(t Target) (ours bool, other lease.Claim, held bool) {
	for _, c := range f.Lease.Holders {
		if t.WorkflowID != "" && c.WorkflowID == t.WorkflowID && c.RunID == t.RunID {
			return true, lease.Claim{}, true
		}
		other, held = c, true
	}
	return false, other, held
}

// grantedBefore tells whether the target's job holds the lease since before then.
func (f Facts) grantedBefore(t Target, at time.Time) bool {
	return slices.ContainsFunc(f.Lease.Holders, func(c lease.Claim) bool {
		return c.WorkflowID == t.WorkflowID && c.RunID == t.RunID && c.Granted.Before(at)
	})
}

func describe(t Takes) string {
	s := fmt.Sprintf("%d of its %d daemons serve", len(t.Running)+t.Unnamed, t.Hosts)
	if t.Mon != "" {
		s += ", mon." + t.Mon + " is in quorum"
	}
	return s
}
