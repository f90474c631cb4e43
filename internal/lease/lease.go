// Package lease decides who may disrupt a storage cluster: jobs whose claims go together, everybody else in a queue by
// priority and then by age. Which claims go together is for the kind of storage to say (Rules). It is pure; the keeper
// is its only user and keeps its State.
package lease

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Priority orders the queue. Higher goes first.
type Priority int

// The priorities, lowest first: the more somebody is already hurt, the sooner it is dealt with.
const (
	PriorityMigration Priority = 10 * (iota + 1)
	PriorityUpdate
	PriorityScaleDown
	PriorityDrain
	PriorityFencing
	PriorityFailure
)

var priorityNames = map[Priority]string{
	PriorityMigration: "migration", PriorityUpdate: "update", PriorityScaleDown: "scale-down",
	PriorityDrain: "drain", PriorityFencing: "fencing", PriorityFailure: "failure",
}

func (p Priority) String() string {
	if s, ok := priorityNames[p]; ok {
		return s
	}
	return fmt.Sprintf("priority %d", int(p))
}

// ParsePriority is the reverse of String.
func ParsePriority(s string) (Priority, bool) {
	for p, name := range priorityNames {
		if name == s {
			return p, true
		}
	}
	return 0, false
}

// Stops is how daemons of one node stop that are failure domains of their own. "": they are in one failure domain.
type Stops string

// The ways to empty a node with several failure domains.
const (
	// StopTogether: the storage cluster says that all of them may stop at once.
	StopTogether Stops = "Together"
	// StopOneByOne: each goes when the data is whole without those that went before. Flags would keep the data from
	// moving.
	StopOneByOne Stops = "OneByOne"
)

// Claim is one job's wish for the lease, and, once granted, its hold on it.
type Claim struct {
	WorkflowID string `json:"workflowID"`
	RunID      string `json:"runID"` // the first run of its chain: a job that continues as new keeps its claim
	// Ask tells the claims of one job apart, which holds one after the other; it rises. 0: the job makes one claim in its
	// life.
	Ask    int64                 `json:"ask,omitempty"`
	Domain storage.FailureDomain `json:"domain"`
	Node   string                `json:"node,omitempty"`
	// Daemons are what the job takes down, by name, when that is not all of a node.
	Daemons  []string `json:"daemons,omitempty"`
	Reason   string   `json:"reason"`
	Priority Priority `json:"priority"`
	// Observing: the disruption is somebody else's and goes on whether granted or not; the job only accompanies it.
	Observing bool `json:"observing,omitempty"`
	// FlagHosts asks for the storage cluster's flag on these hosts, which keeps their data where it is, while the lease is
	// held, at most for the policy's maintenance timeout. A node has several in the topology when its daemons' disks can
	// move between nodes.
	FlagHosts []string `json:"nooutHosts,omitempty"`
	// DownBefore are daemons of the node, or among Daemons, that were down already when the lease was granted. The job
	// need not wait for them.
	DownBefore []string `json:"downBefore,omitempty"`
	// Stops is how the daemons of the node go, if they are in several failure domains. It is decided at the grant, and may
	// change.
	Stops Stops `json:"stops,omitempty"`
	// Reserve: the job needs the leases of several storage clusters and does not have them all yet. What it is granted
	// meanwhile keeps others away, and nothing opens for it. Once others have to wait because of it, it goes back when it
	// is this old. 0: the job needs no other lease, or has begun.
	Reserve time.Duration `json:"reserve,omitempty"`
	// Ready: the job has all of its leases, so that this one is to take effect as soon as the gate lets it.
	Ready bool `json:"ready,omitempty"`
	// Turn: the job takes nothing down by itself; it waits for somebody else to. As long as no daemon of its node is down,
	// the claim goes back when it is this old and others have to wait because of it. 0: it does not.
	Turn time.Duration `json:"turn,omitempty"`

	Requested time.Time `json:"requested"`
	// Granted and Token are set once it holds the lease.
	Granted time.Time `json:"granted,omitzero"`
	Token   int64     `json:"token,omitempty"`
	// Finishing: the job has done its work and gives the lease back as soon as its domain is healed.
	Finishing bool `json:"finishing,omitempty"`
	// WaitsFor says why a claim in the queue is not granted.
	WaitsFor string `json:"waitsFor,omitempty"`
	// Mendable: starting daemons anew elsewhere may mend what it waits for.
	Mendable bool `json:"mendable,omitempty"`
	// Next is what the job claims as soon as this claim is given back: it stands behind whoever waits then, and need not
	// be asked for once more. Only a job that is Finishing has one.
	Next *Claim `json:"next,omitempty"`
}

// Concerns tells whether the job took, or is about to take, this daemon down.
func (c Claim) Concerns(d storage.Daemon) bool {
	return c.Node != "" && d.Node == c.Node || slices.Contains(c.Daemons, d.Name)
}

func (c Claim) is(workflowID, runID string) bool {
	return c.WorkflowID == workflowID && c.RunID == runID
}

// Reserved tells whether nothing may open for a claim although it is granted.
func (c Claim) Reserved() bool { return c.Reserve > 0 }

// State is the lease of one storage cluster.
type State struct {
	// Token of the last grant. Tokens only rise, so a mutating step can tell that its grant is no longer the last word.
	Token   int64   `json:"token"`
	Holders []Claim `json:"holders,omitempty"` // all of them go together
	Queue   []Claim `json:"queue,omitempty"`   // in the order in which they would be granted
}

// Domain is the failure domain that is held; zero when nobody holds the lease.
func (s State) Domain() storage.FailureDomain {
	if len(s.Holders) == 0 {
		return storage.FailureDomain{}
	}
	return s.Holders[0].Domain
}

// Find returns a job's claim and whether it holds the lease.
func (s State) Find(workflowID, runID string) (claim Claim, holds, ok bool) {
	for _, c := range s.Holders {
		if c.is(workflowID, runID) {
			return c, true, true
		}
	}
	for _, c := range s.Queue {
		if c.is(workflowID, runID) {
			return c, false, true
		}
	}
	return Claim{}, false, false
}

// Request puts a claim into the queue. Asking twice changes nothing, so a retried request keeps its place; only that
// the job is ready now is news of a claim that is held in reserve. A later claim of the same job takes the place of one
// that it has given up.
func (s State) Request(c Claim) State {
	if had, holds, ok := s.Find(c.WorkflowID, c.RunID); ok && had.Ask >= c.Ask {
		if holds && had.Ask == c.Ask && had.Reserved() && c.Ready {
			return s.ready(c)
		}
		return s
	}
	s = s.Release(c.WorkflowID, c.RunID)
	// A claim that was taken back while its job said that it is ready begins anew, in reserve: the job may have given up.
	c.Granted, c.Token, c.Finishing, c.Next, c.Stops, c.Ready = time.Time{}, 0, false, nil, "", false
	c.WaitsFor, c.Mendable = "", false
	s.Queue = append(slices.Clone(s.Queue), c)
	slices.SortStableFunc(s.Queue, func(a, b Claim) int {
		if a.Priority != b.Priority {
			return int(b.Priority - a.Priority)
		}
		return a.Requested.Compare(b.Requested)
	})
	return s
}

// ready notes that the job of a claim in reserve has all that it needs.
func (s State) ready(c Claim) State {
	s.Holders = slices.Clone(s.Holders)
	for i, h := range s.Holders {
		if h.is(c.WorkflowID, c.RunID) {
			s.Holders[i].Ready = true
		}
	}
	return s
}

// Release drops a job's claim, held or queued. Unknown jobs change nothing.
func (s State) Release(workflowID, runID string) State {
	drop := func(c Claim) bool { return c.is(workflowID, runID) }
	s.Holders = slices.DeleteFunc(slices.Clone(s.Holders), drop)
	s.Queue = slices.DeleteFunc(slices.Clone(s.Queue), drop)
	return s
}

// Finish marks a holder as done with its work. Its claim goes when the domain has healed. A node that will not come
// back must not keep its flags: the data has to heal without it. next is what the job wants then; nil does not change
// what it said before.
func (s State) Finish(workflowID, runID string, nodeGone bool, next *Claim) State {
	s.Holders = slices.Clone(s.Holders)
	for i, c := range s.Holders {
		if c.is(workflowID, runID) {
			s.Holders[i].Finishing = true
			if nodeGone {
				s.Holders[i].FlagHosts = nil
			}
			if next != nil {
				s.Holders[i].Next = next
			}
		}
	}
	return s
}

// Return takes a claim back whose domain has healed, and lets its job ask for what it wants next. handedOn tells
// whether it does.
func (s State) Return(workflowID, runID string, now time.Time) (next State, handedOn bool) {
	c, _, ok := s.Find(workflowID, runID)
	s = s.Release(workflowID, runID)
	if !ok || c.Next == nil {
		return s, false
	}
	again := *c.Next
	again.WorkflowID, again.RunID, again.Requested = workflowID, runID, now
	return s.Request(again), true
}

// Note notes on every holder's claim what there is to know of it.
func (s State) Note(what func(Claim) Claim) State {
	s.Holders = slices.Clone(s.Holders)
	for i := range s.Holders {
		s.Holders[i] = what(s.Holders[i])
	}
	return s
}

// Rules are what a kind of storage says about claims.
type Rules struct {
	// Together tells whether two claims may be held at the same time. The order of the two says nothing.
	Together func(a, b Claim) bool
	// Gate answers whether a claim may be granted now, and if not, what it waits for.
	Gate func(Claim) storage.Answer
}

// SameDomain is the rule of storage that bears the loss of one failure domain, and of no other at the same time.
func SameDomain(a, b Claim) bool { return a.Domain == b.Domain }

// Grant moves claims from the queue to the holders: those that go together with all holders, or, when nobody holds, the
// first in the queue that the gate lets through and all others that go together with it. A claim that the gate refuses
// is overtaken by the next one only while nobody holds the lease: refusing one domain because another is broken must
// not keep the claim of that one, which would mend it, from being served. Nor may newcomers beside the holders make it
// last for ever while something more urgent waits that does not go together with them; those that only observe a
// disruption which happens anyway may.
//
// A claim in reserve whose job is ready takes effect when the gate lets it through: much may have happened since it was
// granted. It counts as granted then, with a new token.
func (s State) Grant(rules Rules, now time.Time) (State, []Claim) {
	s.Holders, s.Queue = slices.Clone(s.Holders), slices.Clone(s.Queue)
	var granted, waiting []Claim
	for i, c := range s.Holders {
		if !c.Ready {
			continue
		}
		if a := rules.Gate(c); !a.OK {
			s.Holders[i].WaitsFor = a.Reason
			continue
		}
		s.Token++
		c.Granted, c.Token, c.WaitsFor, c.Reserve, c.Ready = now, s.Token, "", 0, false
		s.Holders[i] = c
		granted = append(granted, c)
	}
	for _, c := range s.Queue {
		if in, ok := s.inTheWay(c, rules.Together); ok {
			c.WaitsFor, c.Mendable = heldBy(in), false
			waiting = append(waiting, c)
			continue
		}
		if ahead, ok := outranked(c, waiting, rules.Together); ok && len(s.Holders) > 0 {
			c.WaitsFor, c.Mendable = fmt.Sprintf("its turn: %s wants %s with a higher priority (%s)", ahead.WorkflowID,
				ahead.Domain, ahead.Priority), false
			waiting = append(waiting, c)
			continue
		}
		if a := rules.Gate(c); !a.OK {
			c.WaitsFor, c.Mendable = a.Reason, a.Mendable
			waiting = append(waiting, c)
			continue
		}
		s.Token++
		c.Granted, c.Token, c.WaitsFor, c.Mendable = now, s.Token, "", false
		s.Holders = append(s.Holders, c)
		granted = append(granted, c)
	}
	s.Queue = waiting
	return s, granted
}

// inTheWay finds a holder beside whom a claim may not be held: rather one for whom something is open than one in
// reserve.
func (s State) inTheWay(c Claim, together func(a, b Claim) bool) (in Claim, ok bool) {
	for _, h := range s.Holders {
		if !together(h, c) && (!ok || in.Reserved() && !h.Reserved()) {
			in, ok = h, true
		}
	}
	return in, ok
}

// outranked finds a claim that waits ahead of c, does not go together with it, and is more urgent.
func outranked(c Claim, waiting []Claim, together func(a, b Claim) bool) (Claim, bool) {
	if c.Observing {
		return Claim{}, false
	}
	for _, w := range waiting {
		if !together(w, c) && w.Priority > c.Priority {
			return w, true
		}
	}
	return Claim{}, false
}
