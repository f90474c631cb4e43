// Package budget decides how much voluntary disruption a storage cluster can bear right now, and where. It is pure: the
// keeper feeds it what was seen and applies what it answers.
//
// There are three answers. Default: one daemon, anywhere. Open: any daemon of one failure domain, none elsewhere.
// Closed: none.
//
// Two PodDisruptionBudgets say it. A mark, which is a label on pods that were proved whole, splits the pods between
// them: a pod is under one of the two whatever happens, and never under both. Only marked pods may go at rest. The
// replacement of a pod has no mark, so the budget stays used up until lockkeeper has proved the replacement, too: safe
// with nobody watching.
package budget

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Announcement remembers a cordoned node whose domain was opened because of it.
type Announcement struct {
	Node   string    `json:"node"`
	Opened time.Time `json:"opened"`
	// Spent: its time is over; the node's domain is not opened again until it was back in service.
	Spent bool `json:"spent,omitempty"`
	// Gone: at the last look its daemons did not run, where a turn begins anew with that.
	Gone bool `json:"gone,omitempty"`
}

// Input is all that a decision depends on.
type Input struct {
	Now      time.Time
	View     storage.View
	Health   storage.Health
	Proof    *storage.CleanProof // the last proof that the data was whole; nil: none that counts
	Settings storage.Settings
	Lease    lease.State
	// Announced holds the announcements that had their turn, by node.
	Announced map[string]Announcement
	// HealingSince is when all daemons were up again and only the PGs remained unclean; zero otherwise.
	HealingSince time.Time
	// Unheard: the storage cluster's governors were silent for a while, and nobody has proved since that all who serve by
	// their map are alive.
	Unheard bool
	// Open is the failure domain that is open now, by the last decision; Opened by the budget itself.
	Open, Opened storage.FailureDomain
	// LeftOut are the label values that the budget leaves out for Opened.
	LeftOut []string
	// Going are the mons that their budget lets go now.
	Going []string
	// Life is who gave a sign of life when that was last asked for an opening; nil: no answer that counts.
	Life *storage.Life
	// HeldBack are nodes that are to be fenced, and are not until their own fences have their turn.
	HeldBack []string
	// Released are nodes that are to be fenced and that nothing holds any more: they may be gone at any moment.
	Released []string
	// Shuts: a fence whose node's daemons are to end anyway takes only them, where others are as good as gone elsewhere.
	// Keepers that began earlier opened its failure domain, and no fence of another node waited for them while the quorum
	// needed a mon of theirs.
	Shuts bool
	// BearsForItself: a fence bears with nodes that are held back for its own opening, and for no other one. Keepers that
	// began earlier opened any failure domain as if a fence held it that holds the lease.
	BearsForItself bool

	together string // the failure domain that several are taken for, see asOne
}

// Decide answers how far disruption may be open. Daemons that are down while all data is whole without them do not
// count (a disk that died weeks ago must not block anybody).
func Decide(in Input) Decision {
	in.Lease = in.Lease.InEffect()
	with, shut := in.with, in.shut()
	raw := in
	in = in.asHeld()
	d := decide(in)
	if in.BearsForItself && d.Mode != ModeClosed && d.Reason != ReasonLeaseHeld {
		raw.HeldBack = nil // who is down has its failure domain open, and no fence waits for that
		in = raw.asHeld()
		d = decide(in)
	}
	if d.Mode == ModeOpen && !shut.IsZero() {
		d = shutFor(shut, d)
	}
	d.With = with(d)
	if in.View.Marks != nil {
		d.Unproved = unproved(in, d)
	}
	d.Mons = monBudget(in, d)
	return d
}

// unproved is the budget of the pods without a mark: none may go but those of the open failure domain.
func unproved(in Input, d Decision) *Spec {
	s := Spec{MinAvailable: Everything, Key: d.Budget.Key, Except: d.Budget.Except}
	if d.Mode == ModeDefault {
		s = nobody(in.View.Marks.Mixed)
	}
	return &s
}

// nobody keeps every pod at rest. Where only some of the pods have a controller the disruption controller does not know
// how many there should be: the others would lend evictions.
func nobody(mixed bool) Spec {
	if mixed {
		return Spec{MinAvailable: Everything}
	}
	return Spec{Quiet: true}
}

func decide(in Input) Decision {
	if in.View.Unavailable != "" {
		return closed(ReasonStorageUnavailable, in.View.Unavailable)
	}
	if in.View.NotInCharge != "" {
		return closed(ReasonNotInCharge, in.View.NotInCharge)
	}
	if len(in.View.Problems) > 0 {
		return closed(ReasonProblem, strings.Join(in.View.Problems, "; "))
	}
	if len(in.View.Intolerant) > 0 { // one daemon is as much as such a pool cannot bear
		return closed(ReasonIntolerant, strings.Join(in.View.Intolerant, "; "))
	}
	rest := "one OSD may be disrupted anywhere"
	if in.Settings.AtRest == storage.AtRestNone {
		rest = "cordon a node, and its failure domain opens"
	}
	if domain, why, ok := candidate(in); ok {
		reason, message, failed := check(openGates, in, domain)
		switch {
		case !failed:
			return open(in, domain, why)
		case why.reason != ReasonAnnounced:
			return closed(reason, message)
		}
		// Nothing is wrong but that one domain cannot open in advance.
		rest += fmt.Sprintf("; %s does not open for %s: %s", domain, why.node, message)
	}
	if short := monsShort(in); short != "" && (Clean(in) || timedOut(in)) {
		return closed(ReasonMonQuorum, short+"; nodes without a mon can still be drained, one failure domain at a time")
	}
	if lost := disconnectedToRestart(in.View.Disconnected); lost != "" {
		return closed(ReasonDisconnected, lost)
	}
	if lost := lostNode(in, storage.FailureDomain{}); lost != "" {
		return closed(ReasonNodeNotReady, lost)
	}
	if silent := in.Life.String(); silent != "" {
		// Whoever goes may be the second of whom nothing is heard.
		return closed(ReasonNoSignOfLife, silent)
	}
	if Clean(in) {
		return atRest(in, ReasonClean, rest)
	}
	if timedOut(in) {
		return atRest(in, ReasonPGHealthTimeout,
			fmt.Sprintf("PG health is ignored: %s for longer than pgHealthCheckTimeout (%s)",
				notClean(in), in.Settings.PGHealthCheckTimeout))
	}
	return closed(ReasonNotProvenClean, notClean(in))
}

// Clean tells whether the data is known to be whole as of everything that was seen: the health judges the same map, and
// no daemon is on its way out.
func Clean(in Input) bool { return in.Health.Clean && settled(in) }

// settled tells whether what the health says is so as of everything that was seen.
func settled(in Input) bool {
	if in.View.Unavailable != "" || !in.Health.Fresh || in.Health.ChangeEpoch < in.View.ChangeEpoch ||
		in.Health.Placement != in.View.Placement {
		return false
	}
	for _, d := range in.View.AllDomains() {
		if d.Tally().Unsettled > 0 { // Ceph's clean is about to be a thing of the past
			return false
		}
	}
	return true
}

// Affected lists the failure domains with daemons that are down and whose absence the data still feels.
func Affected(in Input) []storage.Domain {
	if Clean(in) {
		return nil
	}
	var out []storage.Domain
	for _, d := range in.View.AllDomains() {
		if countMissed(in, d) > 0 {
			out = append(out, d)
		}
	}
	return out
}

// countMissed is how many daemons missed would name, had it all names.
func countMissed(in Input, d storage.Domain) int {
	t := d.Tally()
	switch {
	case !proofHolds(in):
		return t.Down
	case d.Touched:
		return t.Down - t.DownBefore
	default:
		return t.Unsettled
	}
}

// missed lists the daemons of a domain that are down and were not at the last proof that the data was whole. One that
// was is not missed while something else goes down either, or a disk that died weeks ago would stop every drain
// half-way.
func missed(in Input, d storage.Domain) []storage.Daemon {
	if proofHolds(in) && !d.Touched {
		return unsettled(d)
	}
	return d.Down()
}

// proofHolds: the cluster still is the one that the proof speaks of, and nothing is known that contradicts it.
func proofHolds(in Input) bool {
	return in.Proof != nil && in.Proof.Shape == in.View.Shape && !contradicted(in)
}

type opening struct {
	reason, message, node string
}

// candidate picks the one domain that may be considered for opening. The order is the invariant "the open domain always
// has daemons down or holds the lease": a holder first, since its job counts on it, unless only other domains are down,
// so that the opening moves on to whom it can help; then the domain that is open already, as long as it is still down;
// then any other that is down; an announcement only when all is quiet.
func candidate(in Input) (storage.FailureDomain, opening, bool) {
	affected := Affected(in)
	if len(in.Lease.Holders) > 0 && in.Lease.MonHeld() == "" {
		h := in.Lease.Holders[0]
		if d := in.turn(h); len(affected) == 0 || contains(affected, d.Name) {
			message := fmt.Sprintf("%s holds the lease: %s", h.WorkflowID, h.Reason)
			if h.Stops == lease.StopOneByOne {
				message += "; its OSDs go one after the other, each when the data is whole without those before"
			}
			return d, opening{reason: ReasonLeaseHeld, message: message}, true
		}
	}
	if len(affected) > 0 {
		pick := affected[0]
		for _, d := range affected {
			if d.Name == in.Open.Name {
				pick = d
			}
		}
		return in.domain(pick.Name), opening{reason: ReasonDisrupted, message: describeMissed(in, pick)}, true
	}
	if !Clean(in) || in.Lease.MonHeld() != "" { // whose mon would have to stay until the job has moved its own
		return storage.FailureDomain{}, opening{}, false
	}
	if n, ok := nextAnnounced(in); ok {
		return in.domain(announced(in, n)), opening{
			reason: ReasonAnnounced, node: n.Name,
			message: fmt.Sprintf("%s is %s: its OSDs may go", n.Name, leaving(n)),
		}, true
	}
	return storage.FailureDomain{}, opening{}, false
}

func contains(domains []storage.Domain, name string) bool {
	return slices.ContainsFunc(domains, func(d storage.Domain) bool { return d.Name == name })
}

func (in Input) domain(name string) storage.FailureDomain {
	return storage.FailureDomain{Type: in.View.FailureDomainType, Name: name}
}

// mostAnnounced is how many announcements are remembered. Who is not announced can be drained all the same.
const mostAnnounced = 128

// nextAnnounced returns the leaving node whose domain is to open in advance: one that has lost a mon before any other,
// since nobody else's mon can go until it is empty and back; then one that is open already; then the first by name
// whose announcement still has time. While somebody waits for the lease only the first kind counts.
func nextAnnounced(in Input) (storage.Node, bool) {
	const begun, opened, fresh = 0, 1, 2
	best, rank := storage.Node{}, fresh+1
	for _, n := range in.View.Nodes {
		daemons, down := n.Counts()
		if !n.Leaving() || n.Domain == "" || daemons == 0 {
			continue
		}
		if down == daemons && !hostsStandingMon(in, n.Name) && len(dead(in, n)) == 0 {
			continue // there is nobody who could go
		}
		a, seen := in.Announced[n.Name]
		r := fresh
		switch {
		case monLeft(in, n.Name):
			r = begun
		case len(in.Lease.Queue) > 0, hostsStandingMon(in, n.Name) && monsShort(in) != "", over(in, a, seen):
			continue
		case seen:
			r = opened
		case len(in.Announced) >= mostAnnounced: // or what is remembered of them would grow without bounds
			continue
		}
		if r < rank {
			best, rank = n, r
		}
	}
	return best, rank <= fresh
}

// announced is the failure domain of a leaving node that opens in advance. Where nothing of it serves any more it is
// one with a pod that does not, which stays until it is let go.
func announced(in Input, n storage.Node) string {
	if daemons, down := n.Counts(); len(n.Domains) > 1 && down == daemons {
		if names := dead(in, n); len(names) > 0 {
			return names[0]
		}
	}
	return n.NextDomain()
}

// dead are the daemons of a node that are down although they have a pod: it crashes again and again, say.
func dead(in Input, n storage.Node) (names []string) {
	for _, d := range in.View.Domains {
		if d.Name != n.Domain && !slices.Contains(n.Domains, d.Name) {
			continue
		}
		for _, x := range d.Troubled {
			if x.Node == n.Name && !x.Up && x.Pod == storage.PodNotReady {
				names = append(names, x.Name)
			}
		}
	}
	return names
}

// over: an announcement had its time.
func over(in Input, a Announcement, seen bool) bool {
	if !seen {
		return in.Settings.AnnouncementTimeout <= 0
	}
	return a.Spent || !in.Now.Before(a.Opened.Add(in.Settings.AnnouncementTimeout))
}

func open(in Input, d storage.FailureDomain, why opening) Decision {
	seen := in.View.Domain(d.Name)
	if in.Life != nil && in.Life.Unproven != "" {
		why.message += "; " + in.Life.Unproven
	}
	return Decision{
		Mode: ModeOpen, Open: d, Reason: why.reason, Message: why.message, Announcement: why.node,
		Budget: Spec{MinAvailable: Everything, Key: in.View.LabelKey, Except: in.labelValues(seen)},
	}
}

// shutFor is what a decision becomes that opens for a fence which takes nothing but what is to end anyway.
func shutFor(domain storage.FailureDomain, d Decision) Decision {
	c := closed(d.Reason, d.Message+"; the daemons of its node are to end anyway, as those of another failure domain "+
		"are, so that nothing else may go")
	if d.Open == domain { // or whoever is down elsewhere would have its failure domain open
		c.Shut = domain
	}
	return c
}

func closed(reason, message string) Decision {
	return Decision{Mode: ModeClosed, Reason: reason, Message: message, Budget: Spec{MinAvailable: Everything}}
}

// atRest allows one daemon among those whose pods are marked, or will be before anything else: the budget counts them
// first. A pod that loses its mark, or never gets it, is the one that is missing. A daemon that is down and not missed
// has no mark, or would lend an eviction when its pod is ready for a moment; a mark that has to go keeps the budget
// closed (see PlanMarks).
func atRest(in Input, reason, message string) Decision {
	d := Decision{Mode: ModeDefault, Reason: reason, Message: message}
	switch m := in.View.Marks; {
	case m == nil:
		d.Budget.MinAvailable = max(countedByPods(in)-1, 0)
	case in.Settings.AtRest == storage.AtRestNone:
		d.Budget = nobody(m.Mixed)
	default:
		d.Budget.MinAvailable = max(m.Proved+m.Unproved-1, 0)
		if m.Unproved > 0 {
			d.Message += fmt.Sprintf(", as soon as %d pods are marked as proved", m.Unproved)
		}
	}
	return d
}

// countedByPods is how many daemons the one budget of version 0.1 counted: those whose pods are ready, or are missed.
func countedByPods(in Input) int {
	counted := in.View.Daemons - in.View.Podless
	for _, d := range in.View.AllDomains() {
		counted -= d.Tally().Uncounted
	}
	return counted
}

// timedOut: all daemons serve, only the PGs do not become clean, and the policy says that this was long enough.
func timedOut(in Input) bool {
	t := in.Settings.PGHealthCheckTimeout
	return t > 0 && !in.HealingSince.IsZero() && len(Affected(in)) == 0 && !in.Now.Before(in.HealingSince.Add(t))
}

func notClean(in Input) string {
	switch {
	case in.Health.ChangeEpoch < in.View.ChangeEpoch || in.Health.Placement != in.View.Placement:
		return "the PGs' state is not known yet as of the last change of an OSD"
	case in.Health.Reason != "":
		return in.Health.Reason
	case !in.Health.Fresh:
		return "the PGs' state is not known to be fresh"
	case !in.Health.Clean:
		return fmt.Sprintf("%d of %d PGs are clean", in.Health.PGsClean, in.Health.PGs)
	default:
		return "an OSD is about to stop"
	}
}

func leaving(n storage.Node) string {
	switch {
	case n.Gone:
		return "deleted"
	case n.Tainted != "":
		return "tainted " + n.Tainted
	default:
		return "cordoned"
	}
}

// describeMissed says which daemons of a domain are missed, a few by name.
func describeMissed(in Input, d storage.Domain) string {
	return describe(missed(in, d), countMissed(in, d))
}

// describe says which daemons are down, a few by name; all is how many they are.
func describe(down []storage.Daemon, all int) string {
	const most = 3
	if len(down) == 0 {
		return fmt.Sprintf("%d OSDs are down", all)
	}
	var parts []string
	for i, d := range down {
		if i == most {
			break
		}
		parts = append(parts, d.String())
	}
	if more := all - len(parts); more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, ", ")
}
