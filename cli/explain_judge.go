package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/quorum"
)

// This file judges: facts in, explanation out. No clock, nobody is asked.

// Names of obstacles that have no reason of the policy's status.
const (
	obstacleDrained      = "AlreadyDrained"
	obstacleTemporal     = "TemporalAway"
	obstacleNoWorker     = "NoWorker"
	obstacleNoKeeper     = "KeeperNotRunning"
	obstacleTrouble      = "KeeperInTrouble"
	obstacleNoManager    = "NoManager"
	obstacleQueue        = "OthersBefore"
	obstacleConflict     = "BudgetConflict"
	obstaclePods         = "PodsRefuse"
	obstacleUnknown      = "NotKnown"
	obstacleNooutExpired = "NooutExpired"
	obstacleFlag         = "CephFlag"
	obstacleNote         = "StorageNote"
	obstacleNoWatcher    = "WatcherNotRunning"
	obstacleCompromise   = "PoolsDisagree"
	obstacleClosed       = "ClosedForAMoment"
)

// noUseWaiting: time alone does not help, or there is nobody to wait with.
var noUseWaiting = []string{
	obstacleDrained, obstacleTemporal, obstacleNoWorker, obstacleNoKeeper, obstacleConflict,
	obstaclePods, budget.ReasonSecondPolicy,
}

// A look is for one kind of thing that may be in the way.
type look func(Facts) []Obstacle

// inTheWay are looked for in this order: first what makes all else unknown, then what has to be mended before time
// alone helps, then what others are doing, and what only passes with time comes last.
var inTheWay = []look{
	lookKeeper, // nobody there who could grant anything
	lookSecond, // another policy is in charge
	ifRefused(lookNotInCharge),
	ifRefused(lookStorage),
	ifRefused(lookLonghorn),
	ifRefused(lookProblems),
	ifRefused(lookIntolerant),
	lookConflict, // evictions would fail
	ifRefused(lookHolders),
	ifRefused(lookQueue),
	ifRefused(lookDownElsewhere),
	lookMons, // a lease does not help a mon that has to stay
	ifRefused(lookClean),
	ifRefused(lookSilent),
	lookPods,
	lookRunning,
}

// ifRefused looks for what may be why the keeper would not grant the lease. If it would, then whatever is found is not
// in the way.
func ifRefused(l look) look {
	return func(f Facts) []Obstacle {
		if f.Lease.OK {
			return nil
		}
		return l(f)
	}
}

// Explain judges. A keeper's own decision has the last word: if it would not grant the lease although nothing else was
// found to be in the way, then its reason is.
func Explain(f Facts) Explanation {
	e := Explanation{
		At: f.At, Node: f.Input.Node, State: f.Node, Policy: f.Policy, Domain: f.Domain, Daemons: f.Daemons,
		InTheWay: []Obstacle{},
	}
	if f.Unguarded != "" {
		e.MayDrain = true
		e.Beware = []Obstacle{{
			Name: "NoStorage", What: f.Input.Node + " " + f.Unguarded,
			Change: "nothing: lockkeeper has no say in it",
		}}
		return e
	}
	if f.Now != nil && f.Now.View.Unavailable == "" {
		e.Storage = describeStorage(f.Now)
	}
	for _, l := range inTheWay {
		e.InTheWay = append(e.InTheWay, l(f)...)
	}
	if len(e.InTheWay) == 0 && !f.Lease.OK {
		what := "the keeper would not grant the lease: " + f.Lease.Reason
		if f.LeaseUnknown != "" {
			what = "whether the keeper would grant the lease is not known: " + f.LeaseUnknown
		}
		e.InTheWay = append(e.InTheWay,
			Obstacle{Name: obstacleUnknown, What: what, Change: "see docs/runbooks/why-is-it-closed.md"})
	}
	e.MayDrain = len(e.InTheWay) == 0
	e.WouldWait = !e.MayDrain &&
		!slices.ContainsFunc(e.InTheWay, func(o Obstacle) bool { return slices.Contains(noUseWaiting, o.Name) })
	for _, l := range worthKnowing {
		e.Beware = append(e.Beware, l(f)...)
	}
	return e
}

func lookKeeper(f Facts) []Obstacle {
	if f.Now != nil {
		return nil
	}
	o := Obstacle{Name: obstacleNoKeeper, What: fmt.Sprint(f.keeperProblem), Change: "the watcher starts a keeper for " +
		"every policy within a minute: is `lockkeeper watch` running? `lockkeeper doctor` tells"}
	switch {
	case errors.Is(f.keeperProblem, ErrAway):
		o.Name, o.Change = obstacleTemporal,
			"Temporal has to answer; until then the last budgets stay, and nobody is granted anything"
	case errors.Is(f.keeperProblem, ErrNoWorker):
		o.Name, o.Change = obstacleNoWorker,
			"start lockkeeper-worker; until then the last budgets stay, and nobody is granted anything"
	}
	o.What += f.lastWord()
	return []Obstacle{o}
}

// lastWord is what can be said without the keeper, and what cannot.
func (f Facts) lastWord() string {
	said := "; what it sees, and whether it would grant the lease, is not known without it"
	switch s := f.Reported; {
	case s.MayDrain == "":
	case kube.Disowned(s):
		said += "; the policy's status: " + s.Message
	case s.AsOf != nil:
		said += fmt.Sprintf("; the policy's status said %q as of %s", s.MayDrain, when(s.AsOf.Time, f.At))
	default:
		said += fmt.Sprintf("; the policy's status last said %q", s.MayDrain)
	}
	return said
}

func lookSecond(f Facts) []Obstacle {
	if f.Now == nil || f.Now.Decision.Reason != budget.ReasonSecondPolicy {
		return nil
	}
	return []Obstacle{{
		Name: budget.ReasonSecondPolicy, Since: f.Now.Since, What: f.Now.Decision.Message,
		Change: "ask with --policy for the one that was first, or delete one of the two",
	}}
}

func lookNotInCharge(f Facts) []Obstacle {
	if f.Now == nil || f.Now.View.NotInCharge == "" {
		return nil
	}
	return []Obstacle{{
		Name: budget.ReasonNotInCharge, Since: f.since(budget.ReasonNotInCharge), What: f.Now.View.NotInCharge,
		Change: "it ends by itself within seconds; if it does not, see docs/runbooks/why-is-it-closed.md",
	}}
}

func lookStorage(f Facts) []Obstacle {
	if f.Now == nil || f.Now.View.Unavailable == "" || f.Now.Decision.Reason == budget.ReasonSecondPolicy {
		return nil
	}
	return []Obstacle{{
		Name: budget.ReasonStorageUnavailable, Since: f.Now.Since,
		What: "the storage cluster does not answer: " + f.Now.View.Unavailable,
		Change: "a majority of the mons has to answer: `kubectl -n " + namespaceOf(f.Policy) +
			" get pods -l app=rook-ceph-mon -o wide`; if it says access denied or forbidden, mend the credentials",
	}}
}

func lookProblems(f Facts) []Obstacle {
	if f.Now == nil {
		return nil
	}
	var out []Obstacle
	for _, p := range f.Now.View.Problems {
		out = append(out, Obstacle{
			Name: budget.ReasonProblem, Since: f.since(budget.ReasonProblem), What: p,
			Change: "mend what it names: a label, spec.ceph.osds, a stray Deployment of a purged OSD",
		})
	}
	return out
}

func lookIntolerant(f Facts) []Obstacle {
	if f.Now == nil {
		return nil
	}
	var out []Obstacle
	for _, p := range f.Now.View.Intolerant {
		out = append(out, Obstacle{
			Name: budget.ReasonIntolerant, Since: f.since(budget.ReasonIntolerant),
			What:   p + ": without one failure domain its data would be unavailable",
			Change: "raise its size, or add it to spec.ceph.toleratedPools if that is all right",
		})
	}
	return out
}

func lookConflict(f Facts) []Obstacle {
	if f.Now == nil || f.Now.Conflict == "" {
		return nil
	}
	return []Obstacle{{
		Name: obstacleConflict, What: f.Now.Conflict,
		Change: "delete the other budget, or take its pods out of its selector",
	}}
}

// lookMons: a node whose mon is needed for a majority can begin nothing that it could end.
func lookMons(f Facts) []Obstacle {
	if f.Now == nil || f.AllowMonQuorumLoss && len(f.Now.View.Mons) <= 2 {
		return nil
	}
	var standing, out []string
	mine := ""
	for _, m := range f.Now.View.Mons {
		switch {
		case !m.Standing():
			out = append(out, m.String())
		case m.Node != f.Input.Node && f.Now.Known != nil && slices.Contains(f.Now.Known.Released, m.Node):
			out = append(out, budget.MayBeFenced(m))
		case m.Node == f.Input.Node:
			mine = m.Name
			fallthrough
		default:
			standing = append(standing, m.Name)
		}
	}
	all := len(f.Now.View.Mons)
	if mine == "" || quorum.Has(all, len(standing)-1) {
		return nil
	}
	o := Obstacle{
		Name: budget.ReasonMonQuorum,
		What: fmt.Sprintf("mon.%s on %s is needed: without it only %d of %d mons are left, and a majority is %d", mine,
			f.Input.Node, len(standing)-1, all, quorum.Majority(all)),
		Change: "run at least three mons, or set spec.ceph.allowMonQuorumLoss if Ceph may stop answering meanwhile",
	}
	if len(out) > 0 {
		o.What += "; " + strings.Join(out, ", ")
		o.Change = "bring that mon back into quorum first"
	}
	return []Obstacle{o}
}

func lookHolders(f Facts) []Obstacle {
	if f.Now == nil {
		return nil
	}
	var out []Obstacle
	for _, h := range f.Now.Lease.Holders {
		if h.Domain == f.Domain || h.Node == f.Input.Node {
			continue
		}
		o := Obstacle{
			Name: budget.ReasonLeaseHeld, Since: h.Granted,
			What: fmt.Sprintf("%s holds the lease of %s", h.WorkflowID, h.Domain),
		}
		if h.Reason != "" {
			o.What += " (" + h.Reason + ")"
		}
		if h.Reserved() {
			o.What += "; in reserve, until it has that of another storage cluster"
		}
		if h.Finishing {
			o.What += "; its work is done, and it waits for the storage there to be whole"
		}
		if job, ok := f.Holders[h.WorkflowID]; ok && job.WaitsFor() != "" {
			o.What += fmt.Sprintf("; it waits for %s, since %s", job.WaitsFor(), when(job.waitsSince(), f.At))
		}
		o.Change = f.howItEnds(h)
		out = append(out, o)
	}
	return out
}

// howItEnds says what has to happen for a holder to give the lease back.
func (f Facts) howItEnds(h lease.Claim) string {
	if h.Reserved() && !h.Ready {
		return fmt.Sprintf("it goes back by itself when it is %s old, since others wait for it; or %s gets the other lease "+
			"before", duration.HumanDuration(h.Reserve), h.WorkflowID)
	}
	if _, target, ok := jobs.Parse(h.WorkflowID); ok && target.Node == "" {
		return fmt.Sprintf("its OSDs have to serve again, and the data to be whole; then others have their turn before its "+
			"next batch. `lockkeeper status %s` says how far it is; `lockkeeper pause %s` holds it after this batch",
			h.WorkflowID, h.WorkflowID)
	}
	for _, n := range f.Now.Noout {
		if n.Owner == h.WorkflowID && !n.Withdrawn && f.At.Before(n.Expires) {
			return fmt.Sprintf("it ends when %s is back and its storage whole; noout there lasts until %s. `lockkeeper status "+
				"%s`; if nobody wants it any more: `lockkeeper abort %s`", h.Node, when(n.Expires, f.At), h.Node, h.Node)
		}
	}
	if !f.At.Before(h.Granted.Add(f.MaintenanceTimeout.Duration)) {
		return fmt.Sprintf("it has had noout for %s, all that the policy allows: Ceph makes new copies elsewhere, and when "+
			"the data is whole without %s, the lease is free. Or bring %s back",
			duration.HumanDuration(f.MaintenanceTimeout.Duration), h.Node, h.Node)
	}
	return fmt.Sprintf("it ends when %s is back and its storage whole. `lockkeeper status %s`; if nobody wants it any "+
		"more: `lockkeeper abort %s`", h.Node, h.Node, h.Node)
}

func lookQueue(f Facts) []Obstacle {
	if f.Now == nil || f.holds() {
		return nil
	}
	var names []string
	var since time.Time
	for _, q := range f.Now.Lease.Queue {
		if q.Node == f.Input.Node {
			break // the others come after it
		}
		if q.Domain == f.Domain {
			continue // they may go together
		}
		if since.IsZero() {
			since = q.Requested
		}
		names = append(names, q.WorkflowID)
	}
	if len(names) == 0 {
		return nil
	}
	return []Obstacle{{
		Name: obstacleQueue, Since: since, What: some(names, mostNames) +
			" asked before, and waits for the lease",
		Change: "wait: one failure domain after the other, in the order in which they asked",
	}}
}

// lookDownElsewhere names OSDs that are down in other failure domains and that the data misses, or may miss.
func lookDownElsewhere(f Facts) []Obstacle {
	if f.Now == nil || f.Now.Clean {
		return nil // the data is whole without them
	}
	var out []Obstacle
	for _, d := range f.Now.View.Domains {
		down := d.Down()
		if len(down) == 0 || d.Name == f.Domain.Name || f.heldDomain(d.Name) {
			continue
		}
		var names []string
		for _, x := range down {
			names = append(names, x.String())
		}
		out = append(out, Obstacle{
			Name: budget.ReasonDownElsewhere, Since: f.since(budget.ReasonDownElsewhere, budget.ReasonDisrupted),
			What:   fmt.Sprintf("in %s %s %s", f.Domain.Type, d.Name, some(names, 3)),
			Change: "bring them back, or let Ceph make the data whole without them: then they no longer count",
		})
	}
	return out
}

// holds tells whether a drain of this very node has the lease.
func (f Facts) holds() bool {
	return slices.ContainsFunc(f.Now.Lease.Holders, func(c lease.Claim) bool { return c.Node == f.Input.Node })
}

// heldDomain tells whether somebody was named already who holds this domain.
func (f Facts) heldDomain(name string) bool {
	return slices.ContainsFunc(f.Now.Lease.Holders, func(c lease.Claim) bool { return c.Domain.Name == name })
}

// lookClean: the data is not whole, or nobody can tell.
func lookClean(f Facts) []Obstacle {
	if f.Now == nil || f.Now.View.Unavailable != "" || f.Now.Clean || f.holds() {
		return nil
	}
	h := f.Now.Health
	o := Obstacle{
		Name: budget.ReasonNotProvenClean, Since: f.since(budget.ReasonNotProvenClean),
		Change: "wait until Ceph has made the data whole: `ceph -s`; it opens by itself within a second",
	}
	switch {
	case h.NoManager:
		o.Name, o.What, o.Change = obstacleNoManager, h.Reason,
			"a mgr has to run: `ceph mgr stat`, `kubectl -n "+namespaceOf(f.Policy)+" get pods -l app=rook-ceph-mgr`. If one "+
				"runs, and Ceph does not name it within a minute, it has lost the mons: delete its pod"
	case !h.Fresh:
		o.What = "whether the data is whole is not known: " + orDash(h.Reason)
		o.Change = "wait: after an OSD came or went it takes up to three report periods to know, some 15 s. An OSD that " +
			"never reports hangs: restart it"
	case len(h.Unexplained) > 0:
		o.What, o.Change = fmt.Sprintf("%d of %d PGs are not clean: %s", h.PGs-h.PGsClean, h.PGs,
			strings.Join(h.Unexplained, ", ")), "that is Ceph's own matter: `ceph health detail`"
	default:
		o.What = fmt.Sprintf("%d of %d PGs are not clean", h.PGs-h.PGsClean, h.PGs)
		if h.Reason != "" {
			o.What = h.Reason
		}
	}
	return []Obstacle{o}
}

func lookSilent(f Facts) []Obstacle {
	if f.Now == nil || f.Now.Known == nil || f.Now.Known.Life.String() == "" {
		return nil
	}
	return []Obstacle{{
		Name: budget.ReasonNoSignOfLife, Since: f.since(budget.ReasonNoSignOfLife), What: f.Now.Known.Life.String(),
		Change: "look at its process and its disk, and restart it; it opens by itself once it reports, or once Ceph calls " +
			"it down",
	}}
}

func lookPods(f Facts) []Obstacle {
	var out []Obstacle
	for _, r := range f.Outlook.Refused {
		out = append(out, Obstacle{
			Name: obstaclePods, What: r,
			Change: "delete them yourself, or drain with --force or --delete-emptydir-data as it says",
		})
	}
	return out
}

func lookRunning(f Facts) []Obstacle {
	if f.Running == nil {
		return nil
	}
	return []Obstacle{{
		Name: obstacleDrained, Since: f.Running.Started, What: f.Running.Describe(f.At),
		Change: "follow it: `lockkeeper status " + f.Input.Node + " -w`",
	}}
}

// since is when the keeper's present decision began, if it is for one of these reasons; otherwise that is not known.
func (f Facts) since(reasons ...string) time.Time {
	if slices.Contains(reasons, f.Now.Decision.Reason) {
		return f.Now.Since
	}
	return time.Time{}
}

func workflowsOf(claims []lease.Claim) []string {
	out := make([]string, len(claims))
	for i := range claims {
		out[i] = claims[i].WorkflowID
	}
	return out
}

func namespaceOf(policy string) string {
	ns, _, _ := strings.Cut(policy, "/")
	return ns
}
