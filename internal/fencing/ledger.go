package fencing

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file is the keeper's ledger of holds: what it notes before it does it.

// Ledger is what the keeper of a policy remembers of fencing. It is written down before what it describes is done.
type Ledger struct {
	// Fencing is how and where what is noted here was set. When the policy says something else by now, all of it is
	// taken away first.
	storage.Fencing
	// Held are the keys of the Machines that carry a hold of ours, or are about to, in order: see Key.
	Held []string `json:"held,omitempty"`
	// Budget: a MachineDisruptionBudget of ours is there, or is about to be.
	Budget bool   `json:"budget,omitempty"`
	Cases  []Case `json:"cases,omitempty"`
}

// InForce is how Machines are held by now. That is as the policy wants it, unless a node is to be fenced which is held
// in another way: between the two nothing would hold it, and whoever waits for that would fence it. waits names such a
// node. That nothing is to be held any more is somebody's word, and in force at once.
func InForce(wanted *storage.Fencing, l *Ledger) (spec *storage.Fencing, waits string) {
	if wanted == nil || l == nil || *wanted == l.Fencing || !l.holdsAny() {
		return wanted, ""
	}
	for _, c := range l.Cases {
		if c.Stage == StageHeld || c.Stage == StageReleased {
			return &l.Fencing, c.Node
		}
	}
	return wanted, ""
}

// Stage is where a case stands.
type Stage string

// The stages of a case.
const (
	StageHeld     Stage = "Held"     // its Machine is held, and the case waits
	StageReleased Stage = "Released" // its Machine may be fenced
	StageHealing  Stage = "Healing"  // it was fenced, or need not be any more, and the data is not known to be whole yet
	StageOver     Stage = "Over"     // never kept: what the job hears when its case is over
)

// Case is a node that is to be fenced, from when its job asks until the data is whole again.
type Case struct {
	Target
	Stage Stage `json:"stage"`
	// Machine and UID are what was released, At when. Free: the node hosts nothing, so that nobody waits for it.
	Machine string    `json:"machine,omitempty"`
	UID     string    `json:"uid,omitempty"`
	At      time.Time `json:"at,omitzero"`
	Free    bool      `json:"free,omitempty"`
	// Returns is how often a release was taken back since nobody fenced the node.
	Returns int `json:"returns,omitempty"`
	// Reason and Message say why it waits, or was released; Against is what an override passed over.
	Reason  string                  `json:"reason,omitempty"`
	Message string                  `json:"message,omitempty"`
	Against string                  `json:"against,omitempty"`
	Domains []storage.FailureDomain `json:"domains,omitempty"` // of what the node hosts, or did when it was released
}

// regrets tells whether a release would be wrong by now: what was safe when it was given is not any more, or what was
// dead then serves again, and somebody else may disrupt the storage cluster. That it serves again is no reason alone:
// it is how a node looks that was fenced and is back. A storage cluster that is silent for a moment is none where
// nothing serves: a daemon that its map calls down comes back by that map only. Nor is a failure domain that is closed
// for a look, or a lease that is given back: the job of the release knows of that.
func (c Case) regrets(f Facts, v Verdict) bool {
	if v.Action != Wait {
		return false
	}
	tookNothing := c.Reason == ReasonTakesNothing || c.Reason == ReasonHostsNothing
	switch v.Reason {
	case ReasonDownElsewhere, ReasonMonQuorum, ReasonDisksGo, ReasonRefusedByStorage:
		return true
	case ReasonAwaitsLease, ReasonDomainClosed:
		elsewhere := !f.Open.IsZero() && !slices.Contains(v.Takes.Domains, f.Open)
		return tookNothing && (elsewhere || len(f.Lease.Holders) > 0)
	case ReasonStorageUnavailable:
		return !tookNothing
	default:
		return false
	}
}

// Reasons of a case beside those of a verdict.
const (
	ReasonNotFenced = "NotFenced" // it was released, and nobody fenced it in time: held again
	ReasonFenced    = "Fenced"    // its Machine is gone, or its node is back
	ReasonNotHeld   = "NotHeld"   // the policy holds nothing any more
	ReasonNoMachine = "NoMachine" // no Machine has this node, so that nothing holds it
)

func (l *Ledger) holdsAny() bool { return len(l.Held) > 0 || l.Budget }

// Key is how a Machine is noted: the first 48 random bits of its UID. A thousand Machines are 14 KB in a status then.
func Key(uid string) string { return uid[:min(len(uid), 13)] }

// None tells whether nothing is noted.
func (l *Ledger) None() bool { return l == nil || len(l.Held)+len(l.Cases) == 0 && !l.Budget }

func (l *Ledger) holds(uid string) bool {
	_, found := slices.BinarySearch(l.Held, Key(uid))
	return found
}

// note notes that a Machine carries a hold of ours, or is about to.
func (l *Ledger) note(uid string) {
	if at, found := slices.BinarySearch(l.Held, Key(uid)); !found {
		l.Held = slices.Insert(l.Held, at, Key(uid))
	}
}

// Clone is a copy that shares nothing that changes.
func (l *Ledger) Clone() *Ledger {
	if l == nil {
		return nil
	}
	c := *l
	c.Held, c.Cases = slices.Clone(l.Held), slices.Clone(l.Cases)
	return &c
}

// Covers tells whether whoever knows only l would miss nothing that m notes. What a case waits for it finds out again.
func (l *Ledger) Covers(m *Ledger) bool {
	if m.None() {
		return true
	}
	if l == nil || l.Fencing != m.Fencing || m.Budget && !l.Budget {
		return false
	}
	for _, key := range m.Held {
		if _, found := slices.BinarySearch(l.Held, key); !found {
			return false
		}
	}
	for _, c := range m.Cases {
		if !slices.ContainsFunc(l.Cases, func(x Case) bool {
			return x.WorkflowID == c.WorkflowID && x.RunID == c.RunID && x.Stage == c.Stage && x.UID == c.UID &&
				x.Why == c.Why && (x.Override == nil) == (c.Override == nil)
		}) {
			return false
		}
	}
	return true
}

// Request notes what a job asks for. Asking again keeps its place, and what was released stays so. A job whose node has
// recovered knows no time since when it is to be fenced: then it is that of the case, or now.
func (l *Ledger) Request(now time.Time, t Target) {
	for i, c := range l.Cases {
		if c.WorkflowID == t.WorkflowID && c.RunID == t.RunID {
			// One whose release was taken back stands where it was put then: behind those that wait.
			if t.Since.IsZero() || c.Since.Before(t.Since) && c.Why == t.Why || c.Returns > 0 && c.Since.After(t.Since) {
				t.Since = c.Since
			}
			l.Cases[i].Target = t
			return
		}
	}
	// One job of a node runs at a time: what another run asked for is over.
	l.Cases = slices.DeleteFunc(l.Cases, func(c Case) bool { return c.Node == t.Node })
	if t.Since.IsZero() {
		t.Since = now
	}
	l.Cases = append(l.Cases, Case{Target: t, Stage: StageHeld})
}

// Renew forgets what heals, of a job whose node has failed since and is to be fenced once more: a keeper that was told
// so may have died before it noted that. Times are noted to the second. A word renews nothing. It may have been
// said before the job heard that the Machine is gone, and would release the next one.
func (l *Ledger) Renew(t Target) {
	l.Cases = slices.DeleteFunc(l.Cases, func(c Case) bool {
		return c.WorkflowID == t.WorkflowID && c.RunID == t.RunID && c.Stage == StageHealing && c.Why == t.Why &&
			t.Since.Sub(c.Since) >= time.Second
	})
}

// Finish notes that a job need not wait for its remediator any more: the node is back, or is not to be fenced.
func (l *Ledger) Finish(workflowID, runID string) {
	if l == nil {
		return
	}
	for i, c := range l.Cases {
		if c.WorkflowID == workflowID && c.RunID == runID {
			l.Cases[i].Stage, l.Cases[i].Reason, l.Cases[i].Message = StageHealing, ReasonFenced, c.Node+" is back"
		}
	}
}

// Drop forgets the case of a job that has ended. What was released for it is held again.
func (l *Ledger) Drop(workflowID, runID string) {
	if l == nil {
		return
	}
	l.Cases = slices.DeleteFunc(l.Cases, func(c Case) bool { return c.WorkflowID == workflowID && c.RunID == runID })
}

// released are the nodes whose Machines are released; free ones, which keep nobody waiting, only if all are asked for.
func (l *Ledger) released(all bool) (nodes []string) {
	if l == nil {
		return nil
	}
	for _, c := range l.Cases {
		if c.Stage == StageReleased && (all || !c.Free) {
			nodes = append(nodes, c.Node)
		}
	}
	return nodes
}

// waitsForNothing tells whether a Machine was released by hand, or takes nothing with it: no daemon that serves, nor
// disks.
func (l *Ledger) waitsForNothing(uid string) bool {
	return slices.ContainsFunc(l.Cases, func(c Case) bool {
		harmless := !c.DisksGo && (c.Reason == ReasonTakesNothing || c.Reason == ReasonHostsNothing)
		return c.Stage == StageReleased && c.UID == uid && (harmless || c.Reason == ReasonOverridden)
	})
}

// Nodes are those of all cases, of which a look has to say what they host.
func (l *Ledger) Nodes() (nodes []string) {
	if l == nil {
		return nil
	}
	for _, c := range l.Cases {
		nodes = append(nodes, c.Node)
	}
	return nodes
}

// UIDs are those of the Machines that were released, of which a look has to say whether they are still there.
func (l *Ledger) UIDs() (uids []string) {
	if l == nil {
		return nil
	}
	for _, c := range l.Cases {
		if c.UID != "" {
			uids = append(uids, c.UID)
		}
	}
	return uids
}
