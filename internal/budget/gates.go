package budget

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// A gate is one reason not to open a failure domain.
type gate func(Input, storage.FailureDomain) (reason, message string, failed bool)

// openGates must all pass before a domain is open, at every decision anew. Cheap and certain ones first, so that the
// message names the cause and not one of its consequences.
var openGates = []gate{
	gateNamed,      // it is one of those that were looked at
	gateDomainType, // the topology changed under a held lease
	gateTolerant,   // the pools can bear the loss of a domain at all
	gateSelectable, // its pods can be told from the others
	gateConfined,   // nothing is down anywhere else
	gateConnected,  // nobody elsewhere has lost the monitors
	gateProven,     // the data was whole, or is known to be whole enough
	gateReachable,  // no node elsewhere is lost to Kubernetes
	gateAlive,      // nobody hangs elsewhere; last, since to ask takes a while
}

func check(gates []gate, in Input, d storage.FailureDomain) (reason, message string, failed bool) {
	for _, g := range gates {
		if reason, message, failed = g(in, d); failed {
			return reason, message, true
		}
	}
	return "", "", false
}

// gateNamed keeps what a View that is too large has no name for.
func gateNamed(in Input, d storage.FailureDomain) (string, string, bool) {
	others := in.View.Others
	if others == nil || slices.ContainsFunc(in.View.Domains, func(x storage.Domain) bool { return x.Name == d.Name }) {
		return "", "", false
	}
	return ReasonDownElsewhere, fmt.Sprintf(
		"so many failure domains are in trouble that not all were looked at: %d more than %d", others.Merged,
		len(in.View.Domains)), true
}

func gateDomainType(in Input, d storage.FailureDomain) (string, string, bool) {
	if d.Type != in.View.FailureDomainType {
		return ReasonProblem, fmt.Sprintf("the failure domain of the pools is now %q: %s can no longer be opened",
			in.View.FailureDomainType, d), true
	}
	return "", "", false
}

func gateTolerant(in Input, _ storage.FailureDomain) (string, string, bool) {
	if len(in.View.Intolerant) > 0 {
		return ReasonIntolerant, strings.Join(in.View.Intolerant, "; "), true
	}
	return "", "", false
}

func gateSelectable(in Input, d storage.FailureDomain) (string, string, bool) {
	// Between eviction and replacement a domain may have no pods at all; then there is nothing to leave out.
	if seen := in.View.Domain(d.Name); len(seen.LabelValues) == 0 && !podless(seen) && in.together != d.Name {
		return ReasonProblem, fmt.Sprintf("no pod of %s carries the label %q, so a budget cannot leave it out", d,
			in.View.LabelKey), true
	}
	return "", "", false
}

// podless tells whether a domain's daemons have no pods now.
func podless(d storage.Domain) bool {
	t := d.Tally()
	return t.Troubled == d.Daemons && t.Podless == t.Troubled
}

func gateConfined(in Input, d storage.FailureDomain) (string, string, bool) {
	for _, a := range Affected(in) {
		if a.Name != d.Name {
			where := in.View.FailureDomainType + " " + a.Name
			if a.Merged > 0 {
				where = fmt.Sprintf("%d other %ss", a.Merged, in.View.FailureDomainType)
			}
			return ReasonDownElsewhere, fmt.Sprintf("%s stays closed: in %s %s", d, where, describeMissed(in, a)), true
		}
	}
	return "", "", false
}

// gateConnected lets a domain open only when no daemon elsewhere has lost the monitors. The placement groups that it
// leads would not agree on who has them once others of theirs have gone, whatever Ceph says of who may stop. Those of
// the domain itself are no reason: they have to be restarted.
func gateConnected(in Input, d storage.FailureDomain) (string, string, bool) {
	if in.View.Disconnected.Within(d) {
		return "", "", false
	}
	return ReasonDisconnected, disconnectedToRestart(in.View.Disconnected), true
}

// WhoIsDisconnected says who has lost the monitors; "" for nobody.
func WhoIsDisconnected(d *storage.Disconnected) string { return describeDisconnected(d, "") }

// disconnectedToRestart says who has lost the monitors, and what to do about it; "" for nobody. One after the other,
// since they may lead the same placement groups.
func disconnectedToRestart(d *storage.Disconnected) string {
	if d != nil && d.Certain() == 1 {
		return describeDisconnected(d, "; restart it")
	}
	return describeDisconnected(d, "; restart them, one after the other")
}

func describeDisconnected(d *storage.Disconnected, cure string) string {
	if d == nil {
		return ""
	}
	const (
		lost  = ": up, and without a session with any monitor, so that PGs stand still when others stop"
		doubt = "; the monitors were silent, or nobody asked them, so that it is known in a few seconds"
	)
	switch certain := d.Certain(); {
	case certain == 0:
		return naming(d, d.Daemons) + ": up, and perhaps without a session with any monitor" + doubt
	case d.Presumed > 0:
		return fmt.Sprintf("%s%s%s. Perhaps %d more%s", naming(d, certain), lost, cure, d.Presumed, doubt)
	default:
		return naming(d, certain) + lost + cure
	}
}

// naming names some of a number of daemons.
func naming(d *storage.Disconnected, all int) string {
	who := strings.Join(d.Examples, ", ")
	switch more := all - len(d.Examples); {
	case len(d.Examples) == 0:
		return fmt.Sprintf("%d OSDs (which, is not known: %s)", all, d.Why)
	case more > 0:
		return fmt.Sprintf("%s and %d more", who, more)
	}
	return who
}

// gateReachable lets a domain open only when no node elsewhere is lost to Kubernetes while its daemons are up in the
// storage cluster's map: the map may be about to follow.
func gateReachable(in Input, d storage.FailureDomain) (string, string, bool) {
	message := lostNode(in, d)
	return ReasonNodeNotReady, message, message != ""
}

// lostNode says which node outside a domain is not ready while daemons on it are up; "" for none.
func lostNode(in Input, d storage.FailureDomain) string {
	for _, n := range in.View.Nodes {
		if n.Lost > 0 && (d.IsZero() || n.Domain != d.Name || len(n.Domains) > 1) {
			return fmt.Sprintf("node %s is not ready, and %d of its %d OSDs are up in Ceph's map", n.Name,
				n.Lost, len(n.Daemons))
		}
	}
	return ""
}

// gateProven lets a domain open on one of two proofs. Either the data was whole, and all that happened since happened
// inside this domain: then every PG still has all its copies elsewhere, whatever the PGs report meanwhile. Or the PGs'
// state is fresh, and the storage cluster itself says that the rest of the domain may stop.
//
// The storage cluster's own no counts against either proof, see refused.
func gateProven(in Input, d storage.FailureDomain) (string, string, bool) {
	if len(in.Health.Unexplained) > 0 {
		return ReasonNotProvenClean, "PGs are " + strings.Join(in.Health.Unexplained, ", "), true
	}
	ok := in.View.Domain(d.Name).OKToStop
	if Clean(in) {
		if ok != nil && !ok.OK {
			return ReasonRefusedByStorage, fmt.Sprintf("%s: %s", d, ok.Reason), true
		}
		return "", "", false
	}
	if refused(in, ok) {
		return ReasonRefusedByStorage, fmt.Sprintf("%s: %s", d, ok.Reason), true
	}
	if provenBefore(in, d) && (!in.Unheard || fresh(in)) {
		return "", "", false
	}
	switch {
	case in.Unheard && !fresh(in):
		return ReasonNotProvenClean, "the monitors were silent, and not every OSD has given a sign of life since", true
	case !fresh(in) || ok == nil:
		return ReasonNotProvenClean, notClean(in), true
	case !ok.OK:
		return ReasonRefusedByStorage, fmt.Sprintf("%s: %s", d, ok.Reason), true
	}
	return "", "", false
}

// refused tells whether a no counts although the data was proved whole before. That proof tells that all copies were
// there, and the rules how many of them a domain may hold; where the copies are only the storage cluster knows. People
// move them by hand (pg-upmap), which Ceph does not check against every rule: a zone may have two copies of a group
// whose rule wants one in each.
//
// What is down in this domain already is no reason for a no. Ceph is asked about what still runs in it, and counts the
// copies that would remain, those outside of the domain. By the proof they were all there.
//
//   - "Data would become unavailable" counts, fresh or not. The manager never knows less than it knew at the proof, and
//     nothing outside of the domain has changed since; so if too few copies would remain, then because too few are
//     outside. To wait for fresh knowledge would be to open with the no in hand: there is none in the seconds after the
//     first OSD went.
//   - "Data is unavailable already" counts from fresh knowledge only. Groups are unavailable while they agree on who
//     has them, for a moment each time an OSD of the domain comes or goes. With an OSD that never reports, stale
//     knowledge of such a moment would hold up for ever what has begun.
//   - "I cannot tell", or silence, says nothing about the data. The proof does.
//
// A no that holds up what has begun is asked again from time to time, see NextTimer.
func refused(in Input, a *storage.Answer) bool {
	if a == nil {
		return false
	}
	return a.Refusal == storage.RefusalHarm || a.Refusal == storage.RefusalAlready && fresh(in)
}

// gateAlive lets a domain open only when every daemon that is up outside of it has just shown that it lives. The
// storage cluster's map calls a daemon that hangs up for as long as its peers have patience, and without peers for
// ever. A domain that is open stays open without another question.
func gateAlive(in Input, d storage.FailureDomain) (string, string, bool) {
	if in.stands(d) {
		return "", "", false
	}
	message, failed := lifeless(in, d)
	return ReasonNoSignOfLife, message, failed
}

// lifeless says why it is not known that every daemon outside a domain lives.
func lifeless(in Input, d storage.FailureDomain) (string, bool) {
	switch {
	case in.Life.Covers(d):
		return "", false
	case in.Life != nil && in.Life.Outside == d:
		return in.Life.String(), true
	default:
		return fmt.Sprintf("waits for a sign of life of every OSD outside %s", d), true
	}
}

// fresh: everybody who serves by the map that was seen has reported since it changed.
func fresh(in Input) bool {
	return in.View.Unavailable == "" && in.Health.Fresh && in.Health.ChangeEpoch >= in.View.ChangeEpoch
}

// provenBefore: the data was whole at the proof's epoch, the cluster has the same shape, and only d was touched since.
func provenBefore(in Input, d storage.FailureDomain) bool {
	if !proofHolds(in) {
		return false
	}
	for _, x := range in.View.AllDomains() {
		if x.Name != d.Name && (x.Touched || x.Tally().Unsettled > 0) {
			return false
		}
	}
	return true
}

// unsettled lists daemons that went down without a touched epoch yet: only their pods tell.
func unsettled(d storage.Domain) []storage.Daemon {
	var out []storage.Daemon
	for _, x := range d.Troubled {
		if x.Unsettled() {
			out = append(out, x)
		}
	}
	return out
}

// LeaseGate answers whether a claim may hold the lease now. It is the same chain that opens a domain, asked as if the
// claim held it, and stricter for a job that is about to take daemons down itself: it starts from clean data only.
func LeaseGate(in Input, c lease.Claim) storage.Answer {
	if in.View.Unavailable != "" {
		return storage.Answer{Reason: "the storage cluster: " + in.View.Unavailable}
	}
	if in.View.NotInCharge != "" {
		return storage.Answer{Reason: in.View.NotInCharge}
	}
	if len(in.View.Problems) > 0 {
		return storage.Answer{Reason: strings.Join(in.View.Problems, "; ")}
	}
	if c.OfMon() {
		return monGate(in, c)
	}
	in = in.bearingToOpen(c)
	if c.Stops = Stops(in, c); c.Stops == lease.StopTogether {
		in = in.asOne(c)
	}
	domain := in.turn(c)
	if reason, message, failed := check(openGates, in, domain); failed {
		return storage.Answer{
			Reason: message, Mendable: reason == ReasonDownElsewhere || reason == ReasonDisconnected,
		}
	}
	if short := monsShort(in); short != "" && !c.Observing && c.Node != "" && hostsStandingMon(in, c.Node) {
		return storage.Answer{Reason: fmt.Sprintf("%s has a mon that must stay: %s", c.Node, short)}
	}
	// Of a domain that is open, too: the job takes down what is still up there.
	if message, failed := lifeless(in, domain); failed {
		return storage.Answer{Reason: message}
	}
	if c.Observing || Clean(in) {
		return storage.Answer{OK: true}
	}
	// Whoever has lost the mons is in this domain.
	lacks := countMissed(in, in.View.Domain(domain.Name)) > 0 || in.View.Disconnected != nil
	if !timedOut(in) && !lacks {
		return storage.Answer{Reason: notClean(in)}
	}
	return storage.Answer{OK: true}
}
