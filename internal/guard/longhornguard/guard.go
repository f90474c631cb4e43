package longhornguard

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/flags"
	"github.com/lockkeeper/lockkeeper/internal/guard"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/longhorn"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// NodeDomain is the type of the failure domains: each node is one.
const NodeDomain = "node"

// Domain is what a job claims that empties a node.
func Domain(node string) storage.FailureDomain {
	return storage.FailureDomain{Type: NodeDomain, Name: node}
}

// Guard implements guard.Guard.
type Guard struct{ guard.Plain }

var _ guard.Guard = Guard{}

// shut is why nothing may open at all; "": nothing is.
func shut(in guard.Input) (l Look, why string) {
	l, ok := seen(in)
	switch {
	case in.View.Unavailable != "":
		why = in.View.Unavailable
	case !ok:
		why = "the look does not tell where the volumes are"
	case in.View.NotInCharge != "":
		why = in.View.NotInCharge
	}
	return l, why
}

// Together lets jobs empty nodes at the same time that may go beside each other: of those that the look was asked
// about, each that is admitted was judged beside those before it.
func (Guard) Together(in guard.Input, a, b lease.Claim) bool {
	if a.Node == b.Node {
		return true
	}
	l, _ := seen(in)
	x, askedX := l.admission(a.Node)
	y, askedY := l.admission(b.Node)
	return askedX && askedY && x.OK && y.OK
}

// Gate lets a job have a node that could leave once nothing is attached to it.
func (Guard) Gate(in guard.Input, c lease.Claim) storage.Answer {
	l, why := shut(in)
	if why != "" {
		return storage.Answer{Reason: why}
	}
	a, asked := l.admission(c.Node)
	if !asked {
		return storage.Answer{Reason: "others are looked at first"}
	}
	return storage.Answer{OK: a.OK, Reason: a.Reason.Sentence(a.Subject)}
}

// Healed waits until the node is gone or on its way, or its instance manager runs again.
func (Guard) Healed(in guard.Input, c lease.Claim) storage.Answer {
	l, why := shut(in)
	if why != "" {
		return storage.Answer{Reason: why}
	}
	n, known := l.node(c.Node)
	m, has := l.Managers[c.Node]
	if !known || !has || n.Leaving != longhorn.NotLeaving || m.Running {
		return storage.Answer{OK: true}
	}
	return storage.Answer{Reason: "the instance manager on " + c.Node + " does not run yet"}
}

// Serves tells whether the node is open, or will be as soon as nothing is attached to it any more.
func (Guard) Serves(in guard.Input, _ budget.Decision, c lease.Claim) bool {
	l, why := shut(in)
	a, asked := l.admission(c.Node)
	return why == "" && asked && a.OK
}

// Interest is whose turn it is: the holders and what is open, then the queue, and last those that had their turn.
func (Guard) Interest(in guard.Input, claims []lease.Claim) (out storage.Interest) {
	holds, givesWay := map[string]bool{}, map[string]bool{}
	for _, h := range in.Lease.InEffect().Holders {
		out.Held, holds[h.Node] = append(out.Held, h.Node), true
		givesWay[h.Node] = h.Turn > 0 // nobody empties it who would come back to it
	}
	waits := map[string]bool{}
	for _, c := range claims {
		if c.Node != "" && !holds[c.Node] {
			out.Nodes, waits[c.Node] = append(out.Nodes, c.Node), true
		}
		if c.Next != nil && !holds[c.Next.Node] && !waits[c.Next.Node] {
			out.Nodes = append(out.Nodes, c.Next.Node)
		}
	}
	out.Went = slices.Sorted(maps.Keys(in.Announced))
	for _, open := range in.LeftOut {
		if !slices.Contains(out.Went, open) {
			out.Went = append(out.Went, open)
		}
	}
	for _, name := range out.Went {
		switch a := in.Announced[name]; {
		case holds[name] && givesWay[name] && a.Spent && a.Gone:
			out.Over = append(out.Over, name)
		case holds[name]: // by which it has its place
		case a.Spent: // a place in the queue comes first
			out.Last = append(out.Last, name)
			if a.Gone {
				out.Over = append(out.Over, name)
			}
		case waits[name]:
		default:
			out.Domains = append(out.Domains, name)
		}
	}
	return out
}

// lookAgain is how long after a look that failed the next one is taken.
const lookAgain = 15 * time.Second

// Next is when a node has had its turn for long enough that others wait for it. A look that failed, and so has no time,
// is taken again: the watch goes by a cache, and does not hear that the API server gave no answer.
func (Guard) Next(in guard.Input, after budget.Remembered, _ []flags.Record) (next time.Time) {
	if in.View.Unavailable != "" && in.View.At.IsZero() {
		return in.Now.Add(lookAgain)
	}
	if outdated(in) {
		return in.Now.Add(time.Second)
	}
	//workflowcheck:ignore the earliest is the same in any order
	for _, a := range after.Announced {
		at := a.Opened.Add(in.Settings.AnnouncementTimeout)
		if !a.Spent && at.After(in.Now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// outdated tells whether the look took a node for one that a job empties, and by now none does: the job has given its
// lease back since, which nobody else tells.
func outdated(in guard.Input) bool {
	l, why := shut(in)
	if why != "" {
		return false
	}
	return slices.ContainsFunc(l.Nodes, func(n longhorn.NodeSummary) bool {
		seen, is := in.View.Node(n.Node)
		return n.Leaving == longhorn.Cordoned && is && !seen.Cordoned && seen.Tainted == "" &&
			!slices.ContainsFunc(in.Lease.InEffect().Holders, func(c lease.Claim) bool { return c.Node == n.Node })
	})
}

// Decide implements guard.Guard.
func (Guard) Decide(in guard.Input) guard.Verdict {
	l, why := shut(in)
	if why != "" {
		return guard.Verdict{Decision: closed(in, why), Remembered: budget.Remembered{Announced: in.Announced}}
	}
	v := guard.Verdict{Decision: decide(in, l), Clean: len(l.away()) == 0 && l.Faults == 0}
	v.Remembered.Announced, v.Stay, v.Relocate = nextTurns(in, l), l.stay(), l.relocate()
	v.Unheld = len(l.Unheld) > 0
	if m := in.View.Marks; m != nil && v.Decision.Mode == budget.ModeDefault {
		v.Marks = budget.MarkPlan{Set: m.Unproved > 0, Most: m.Proved + m.Unproved, Unset: m.Stale > 0}
		if in.Settings.AtRest == storage.AtRestNone {
			marked := m.Proved+m.Stale > 0 || len(m.Foreign) > 0
			v.Marks = budget.MarkPlan{Unset: marked, UnsetAll: marked}
		}
		for _, h := range in.Lease.InEffect().Holders {
			v.Marks.Held = append(v.Marks.Held, h.Node)
		}
	}
	return v
}

// closed lets nobody go.
func closed(in guard.Input, why string) budget.Decision {
	d := budget.Decision{
		Mode: budget.ModeClosed, Reason: budget.ReasonStorageUnavailable, Message: why, Budget: everything(),
		Unproved: pointer(everything()),
	}
	if in.View.Unavailable == "" && in.View.NotInCharge != "" {
		d.Reason = budget.ReasonNotInCharge
	}
	return d
}

func everything() budget.Spec { return budget.Spec{MinAvailable: budget.Everything} }

func pointer(s budget.Spec) *budget.Spec { return &s }

func decide(in guard.Input, l Look) budget.Decision {
	open := l.open()
	if len(open) == 0 {
		return atRest(in, l)
	}
	d := budget.Decision{
		Mode: budget.ModeOpen, Open: Domain(open[0]), With: open[1:], Reason: budget.ReasonLeaving,
		Message: describe(l, open), Budget: everything(),
	}
	for _, h := range in.Lease.InEffect().Holders {
		if slices.Contains(open, h.Node) {
			d.Reason = budget.ReasonLeaseHeld
		}
	}
	d.Budget.Key, d.Budget.Except = in.View.LabelKey, open
	d.Unproved = pointer(d.Budget)
	return d
}

// describe says why nodes are open.
func describe(l Look, open []string) string {
	var out []string
	for _, name := range open {
		n, _ := l.node(name)
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s is %s: %s", name, n.Leaving, n.Reason.Sentence(n.Subject))))
	}
	return strings.Join(out, "; ")
}

// atRest lets one of the spare nodes go, and none as long as another one is away: the two could share a volume.
func atRest(in guard.Input, l Look) budget.Decision {
	quiet := budget.Spec{Quiet: true}
	d := budget.Decision{Mode: budget.ModeDefault, Reason: budget.ReasonClean, Budget: quiet, Unproved: pointer(quiet)}
	if l.leaving() || len(in.Lease.Queue)+len(in.Lease.Holders) > 0 {
		// Somebody asks already, and of a quiet budget the API server says to ask again after ten seconds.
		d.Unproved = pointer(everything())
	}
	spare := spares(l)
	away := l.allAway()
	switch m := in.View.Marks; {
	case l.Fault != "":
		d.Message = fmt.Sprintf("something could not be read, and what it may be about stays protected: %s", l.Fault)
		d.Answer = nobody
	case in.Settings.AtRest == storage.AtRestNone:
		d.Message, d.Answer = "a node opens when it is cordoned or leaving, as soon as its volumes can bear it", nobody
	case len(l.evicted()) > 0:
		d.Message, d.Answer = "replicas are moved away from "+names(l.evicted()), nobody
	case len(away) > 0:
		d.Message, d.Answer = "no instance manager runs on "+names(away), nobody
	case len(spare) == 0:
		d.Message, d.Answer = "every node keeps a volume or is in use: a node opens when it is cordoned or leaving, as "+
			"soon as its volumes can bear it", nobody
	case m == nil || m.Proved+m.Unproved == 0:
		d.Message, d.Answer = "no instance manager of a node on which nothing depends is ready", nobody
	default:
		d.Budget = budget.Spec{MinAvailable: m.Proved + m.Unproved - 1}
		d.Message = "nothing depends on " + names(spare)
		if d.Answer = "one of " + names(spare); len(spare) == 1 {
			d.Answer = spare[0]
		}
	}
	return d
}

// nobody is the answer to who may drain while no node is leaving and none is spare.
const nobody = "a node once it is cordoned"

// spares are the nodes of which one may go, by name.
func spares(l Look) (out []string) {
	for _, n := range l.Nodes {
		if _, has := l.Managers[n.Node]; has && n.State == longhorn.Spare {
			out = append(out, n.Node)
		}
	}
	return out
}

// names lists a few names.
func names(of []string) string {
	const most = 4
	if len(of) <= most {
		return strings.Join(of, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(of[:most], ", "), len(of)-most)
}

// nextTurns notes since when each node has its turn. A node has one that is open, or that has lost its instance manager
// in another way: at rest, or before it was not to leave any more. Its turn begins anew when it goes, since it may go
// at the end of one. After a whole turn in which others waited for it a node comes last, until it is not leaving any
// more. A machine that is dead when it is first seen has no turn, unless it is leaving: it may have been emptied, and
// reboot.
func nextTurns(in guard.Input, l Look) map[string]budget.Announcement {
	out := map[string]budget.Announcement{}
	for _, n := range l.Nodes {
		a, had := in.Announced[n.Node]
		seen, _ := in.View.Node(n.Node)
		opens, away := n.State == longhorn.Open, l.isAway(n.Node)
		died := seen.NotReady && n.Leaving == longhorn.NotLeaving
		goes := had && away && !a.Gone
		if opens && a.Spent || goes || !had && (opens || away && !died) {
			a, had = budget.Announcement{Node: n.Node, Opened: in.Now}, true
		}
		a.Gone = away
		over := !in.Now.Before(a.Opened.Add(in.Settings.AnnouncementTimeout))
		if n.Leaving == longhorn.NotLeaving {
			had = had && away && !over // it went, and is not back
		} else if (opens || away) && over && l.waitedFor(n.Node) {
			a.Spent = true
		}
		if had {
			out[n.Node] = a
		}
	}
	return out
}

// waitedFor tells whether another node waits until this one is gone, or a job that would empty another one.
func (l Look) waitedFor(name string) bool {
	return slices.ContainsFunc(l.Nodes, func(n longhorn.NodeSummary) bool {
		return n.Reason == longhorn.SharesVolume && n.Subject == name
	}) || slices.ContainsFunc(l.Admitted, func(a longhorn.Admission) bool {
		return !a.OK && a.Reason == longhorn.SharesVolume && a.Subject == name
	})
}
