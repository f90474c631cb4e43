package fencing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Action is what is to be done about a target.
type Action string

// The actions.
const (
	Release Action = "Release" // let its Machine be fenced
	Wait    Action = "Wait"    // hold it, and say why
	Keep    Action = "Keep"    // hold it; the job is over
)

// Reasons of a release, and of an end.
const (
	ReasonHostsNothing = "HostsNothing" // the node has no daemons
	ReasonTakesNothing = "TakesNothing" // none of its daemons serves
	ReasonDomainOpen   = "DomainOpen"   // its failure domain is open for it
	ReasonOverridden   = "Overridden"   // a person said so
	ReasonRecovered    = "Recovered"    // it need not be fenced any more
)

// Reasons to wait. Those that a drain may wait for, too, are named as in package budget.
const (
	ReasonAnotherReleased = "AnotherReleased" // one at a time
	ReasonInReserve       = "InReserve"       // another storage cluster on the node lets go first
	ReasonNotSeen         = "NotSeen"         // the look does not say what runs on the node
	ReasonMayReturn       = "MayReturn"       // who is down may live, and had no time yet to say so
	ReasonDisksGo         = "DisksGo"         // its disks go with it, and the data is not whole without them
	ReasonAwaitsLease     = "AwaitsLease"     // somebody else may disrupt the storage cluster now
	ReasonDomainClosed    = "DomainClosed"    // the lease is held, and the failure domain is not open
	// As in package budget.
	ReasonStorageUnavailable = budget.ReasonStorageUnavailable
	ReasonNotInCharge        = budget.ReasonNotInCharge
	ReasonMonQuorum          = budget.ReasonMonQuorum
	ReasonDownElsewhere      = budget.ReasonDownElsewhere
	ReasonRefusedByStorage   = budget.ReasonRefusedByStorage
)

// Verdict is the answer about one target.
type Verdict struct {
	Action  Action `json:"action"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Takes   Takes  `json:"takes"`
	// Free: the storage cluster is known to have nothing on it, and the data is whole. So it is no release that others
	// would have to wait for. One by hand is none, since it may be that nothing is known.
	Free bool `json:"free,omitempty"`
	// Against is what an override passed over: why the Machine would not have been released.
	Against string `json:"against,omitempty"`
}

// WantsLease tells whether the job has to claim the lease before the verdict can become a release.
func (v Verdict) WantsLease() bool { return v.Action == Wait && v.Reason == ReasonAwaitsLease }

// Judge answers whether a node's Machine may be released now. It asks for nothing that a drain of a dead node would
// have to ask for: whoever takes nothing waits for nobody, except for another Machine that is released.
func Judge(f Facts, t Target) Verdict {
	takes := f.Takes(t.Node)
	v := Verdict{Takes: takes}
	if t.Why == WhyRecovered && t.Override == nil {
		v.Action, v.Reason, v.Message = Keep, ReasonRecovered, t.Node+" need not be fenced any more"
		return v
	}
	v.Action, v.Reason, v.Message = Release, ReasonTakesNothing, "none of its daemons serves, so nothing is taken"
	for _, g := range gatesOf(f, takes) {
		if reason, message, failed := g(f, t, takes); failed {
			v.Action, v.Reason, v.Message = Wait, reason, message
			break
		}
	}
	switch {
	case v.Action == Wait:
		return overridden(f, t, v)
	case t.InReserve:
		return inReserve(v)
	case !takes.Nothing() && f.Open.IsZero():
		v.Reason, v.Message = ReasonDomainOpen, fmt.Sprintf("it holds the lease of %s, and takes only what is to end anyway",
			f.Shut)
	case !takes.Nothing():
		v.Reason, v.Message = ReasonDomainOpen, fmt.Sprintf("%s is open for it", f.Open)
	case takes.Hosts == 0:
		v.Reason, v.Message, v.Free = ReasonHostsNothing, "the storage cluster has nothing on it", f.Clean
	}
	return v
}

// overridden lets a person release what would have to wait. One at a time holds all the same: the second may be
// released as soon as the first is gone, and both at once is what nobody can take back.
func overridden(f Facts, t Target, v Verdict) Verdict {
	if t.Override == nil {
		return v
	}
	if other, released := another(f, t); released {
		v.Reason, v.Message = ReasonAnotherReleased, other
		return v
	}
	if t.InReserve {
		return inReserve(v)
	}
	v.Against = v.Reason + ": " + v.Message
	v.Action, v.Reason = Release, ReasonOverridden
	v.Message = fmt.Sprintf("%s released it by hand: %s", t.Override.By, t.Override.Reason)
	return v
}

// inReserve keeps what could go until another storage cluster has let go.
func inReserve(v Verdict) Verdict {
	v.Action, v.Reason = Wait, ReasonInReserve
	v.Message = "it could go: another storage cluster on the node has to let go first"
	return v
}

// A gate is one reason to wait.
type gate func(Facts, Target, Takes) (reason, message string, failed bool)

// gatesOf are the gates that a target has to pass, certain and cheap ones first, so that the message names the cause
// and not one of its consequences. Who hosts nothing waits for nobody, if nothing is missing: of a daemon whose pod is
// gone nobody can tell the node. Whether all its daemons may stop together no lease changes, so it is asked before.
func gatesOf(f Facts, t Takes) []gate {
	known := []gate{gateSeen, gateAnswers, gateHomeless}
	if t.Nothing() && t.Hosts == 0 && f.Clean {
		return known
	}
	known = append(known, gateAnother)
	if t.Nothing() {
		return append(known, gateReturn, gateDisks)
	}
	return append(known, gateNamed, gateQuorum, gateConfined, gateTogether, gateLease, gateOpen, gateDisksOpen)
}

// gateSeen keeps a node of which nobody was asked: a look does not mention nodes that all is well with.
func gateSeen(f Facts, t Target, _ Takes) (string, string, bool) {
	return ReasonNotSeen, "nobody looked at what runs on " + t.Node, !slices.Contains(f.AskedFor, t.Node)
}

func gateAnswers(f Facts, _ Target, _ Takes) (string, string, bool) {
	if f.View.Unavailable != "" {
		return ReasonStorageUnavailable, "nothing is known: " + f.View.Unavailable, true
	}
	return ReasonNotInCharge, f.View.NotInCharge, f.View.NotInCharge != ""
}

// gateHomeless: a daemon that is up although its pod is gone, and of which no node is known, may run on this one. That
// is so when somebody deletes the pods of a node by force that Kubernetes has lost and its storage has not.
func gateHomeless(f Facts, t Target, _ Takes) (string, string, bool) {
	for _, name := range slices.Sorted(maps.Keys(f.View.Departed)) {
		home := slices.ContainsFunc(f.View.Nodes, func(n storage.Node) bool {
			return slices.Contains(n.Daemons, name)
		})
		if !home && !f.down(name) {
			return ReasonNotSeen, fmt.Sprintf("%s is up although its pod is gone, and may run on %s", name, t.Node), true
		}
	}
	return "", "", false
}

func gateAnother(f Facts, t Target, _ Takes) (string, string, bool) {
	message, released := another(f, t)
	return ReasonAnotherReleased, message, released
}

// another finds a Machine that is released and is not the target's.
func another(f Facts, t Target) (string, bool) {
	for _, node := range f.Released {
		if node != t.Node {
			return fmt.Sprintf("the Machine of %s is released, and one goes at a time", node), true
		}
	}
	return "", false
}

// returnsWithin is how long a daemon that lives may take to be called up again when the storage cluster answers anew:
// it has to find a governor that does, and is called up with the next change of the map but one.
const returnsWithin = 5 * time.Second

// mayReturn is for how long daemons of a node that went down before the storage cluster was silent may still have had
// no time to say that they live. Of one that went down after that the others have just said so.
func (f Facts) mayReturn(node string) time.Duration {
	left := returnsWithin - f.View.At.Sub(f.Silent)
	if f.Silent.IsZero() || left <= 0 {
		return 0
	}
	n, _ := f.View.Node(node)
	before := n.MoreDaemons > 0 || slices.ContainsFunc(n.Daemons, func(name string) bool {
		return f.SilentAsOf == 0 || f.downAt(name) <= f.SilentAsOf
	})
	if !before {
		return 0
	}
	return left
}

// gateReturn keeps a node whose daemons went down, in the map, before or while the storage cluster was silent: a
// network that heals gives back them as well.
func gateReturn(f Facts, t Target, _ Takes) (string, string, bool) {
	until := "the storage cluster was silent until"
	if f.SilentAsOf == 0 {
		until = "nothing is known of the time before"
	}
	return ReasonMayReturn, fmt.Sprintf("%s %s UTC: daemons that are down may live, and had no time to say so", until,
		f.Silent.UTC().Format(time.TimeOnly)), f.mayReturn(t.Node) > 0
}

// gateDisks keeps disks that may have what no other disk has. That their daemons are down does not mean that nobody
// will need them: a second failure may come before the data is whole again.
func gateDisks(f Facts, t Target, takes Takes) (string, string, bool) {
	if !t.DisksGo || f.Clean {
		return "", "", false
	}
	return ReasonDisksGo, "its disks go with its Machine, and the data is not known to be whole without them", true
}

// gateDisksOpen keeps the disks of daemons that serve: data is on them until it was moved, which a drain does not do.
func gateDisksOpen(_ Facts, t Target, takes Takes) (string, string, bool) {
	return ReasonDisksGo, fmt.Sprintf("its disks go with its Machine, and %s", describe(takes)),
		t.DisksGo && takes.Hosts > 0
}

func gateNamed(_ Facts, t Target, takes Takes) (string, string, bool) {
	return ReasonNotSeen, fmt.Sprintf("of %d daemons of %s nobody said whether they serve", takes.Unnamed, t.Node),
		takes.Unnamed > 0
}

// gateQuorum takes all mons of the node for one. Whoever is about to go must not be joined by a mon that its budget
// lets go. Before that the lease decides which of them is first.
func gateQuorum(f Facts, t Target, takes Takes) (string, string, bool) {
	if takes.Mon == "" {
		return "", "", false
	}
	var going []string
	if ours, _, _ := f.holder(t); ours || len(takes.Domains) == 0 {
		going = f.MonsGoing
	}
	left, need := f.quorumWithout(func(m storage.Mon) bool { return m.Node == t.Node }, going)
	return ReasonMonQuorum, fmt.Sprintf("without mon.%s %d of %d mons are in quorum, and %d have to be", takes.Mon, left,
		len(f.View.Mons), need), left < need
}

func gateConfined(f Facts, _ Target, takes Takes) (string, string, bool) {
	d, hurt := f.hurtElsewhere(takes.Domains)
	name := d.String()
	if d.Name == "" {
		name = "failure domains that are too many to be named"
	}
	return ReasonDownElsewhere, fmt.Sprintf("%s is hurt, and %s", name, describe(takes)), hurt
}

func gateLease(f Facts, t Target, takes Takes) (string, string, bool) {
	ours, other, held := f.holder(t)
	switch {
	case ours || len(takes.Domains) == 0: // a lease is of a failure domain
		return "", "", false
	case held && slices.Contains(takes.Domains, other.Domain):
		return ReasonAwaitsLease, fmt.Sprintf("%s, and %s holds the lease of the same failure domain, which may be shared",
			describe(takes), other.WorkflowID), true
	case held:
		return ReasonAwaitsLease, fmt.Sprintf("%s, and %s holds the lease of %s (%s)", describe(takes), other.WorkflowID,
			other.Domain, other.Reason), true
	default:
		return ReasonAwaitsLease, describe(takes) + ", so it needs the lease", true
	}
}

// gateOpen: the keeper opens what a holder of the lease needs, when that is safe. Without an open domain our own
// budgets would refuse the evictions with which Cluster API begins.
func gateOpen(f Facts, _ Target, takes Takes) (string, string, bool) {
	if len(takes.Domains) == 0 { // a mon alone: while a failure domain is disrupted the other mons may be needed
		return ReasonDomainClosed, fmt.Sprintf("open is %s, and a mon goes when none is", f.Open),
			!f.Open.IsZero() || len(f.Lease.Holders) > 0
	}
	for _, d := range []storage.FailureDomain{f.Open, f.Shut} {
		if !d.IsZero() && slices.Contains(takes.Domains, d) {
			return "", "", false
		}
	}
	return ReasonDomainClosed, fmt.Sprintf("open is %s, and not %s", f.Open, takes.Domains[0]), true
}

// gateTogether: a fence takes all daemons of a node at once. If they are in several failure domains the storage cluster
// has to say that they may go together.
func gateTogether(f Facts, t Target, takes Takes) (string, string, bool) {
	if len(takes.Domains) < 2 {
		return "", "", false
	}
	n, _ := f.View.Node(t.Node)
	ok := cmp.Or(n.OKToStop, &storage.Answer{Reason: "nobody asked"})
	return ReasonRefusedByStorage, fmt.Sprintf("its daemons are in %d failure domains, and may not stop together: %s",
		len(takes.Domains), ok.Reason), !ok.OK
}
