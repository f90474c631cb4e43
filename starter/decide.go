package starter

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// Actions are what a change calls for. The zero value calls for nothing.
type Actions struct {
	// Signal the keeper, if Hint has a reason.
	Hint workflows.Hint
	// Drains to be started in observing mode, by node: somebody else drains these nodes. The value is why.
	Drains map[string]string
	// Patience is for how long it can wait for more, since nothing closes or opens because of it.
	Patience time.Duration
}

// IsZero tells whether there is nothing to do.
func (a Actions) IsZero() bool { return a.Hint.Reason == "" && len(a.Drains) == 0 }

// Decide compares two snapshots of one storage cluster. before is nil when the watcher has just started: then the
// keeper is signalled once, and every node that is being drained counts as news.
func Decide(before *Snapshot, now Snapshot) Actions {
	if before == nil {
		return Actions{Hint: workflows.Hint{Reason: "the watcher started", Daemons: true}, Drains: newDrains(Snapshot{}, now)}
	}
	if before.Deleting && now.Deleting {
		return Actions{} // the keeper removes its budgets; that is no news to it
	}
	c := changes(*before, now)
	hint := workflows.Hint{Reason: firstOf(c.reasons), Daemons: c.daemons, Alarm: c.alarm, Tampered: c.tampered}
	if len(c.reasons) == 0 {
		hint.Reason, hint.Own = firstOf(c.own), len(c.own) > 0
		hint.Echo, hint.ProvedEcho, hint.MonEcho = c.echo, c.provedEcho, c.monEcho
	}
	return Actions{Hint: hint, Drains: newDrains(*before, now), Patience: c.patience()}
}

// newDrains lists the nodes that somebody else began to drain: leaving, and with an OSD that does not serve. Only the
// beginning counts, so that a drain which a person aborted does not come back while all remains as it is.
func newDrains(before, now Snapshot) map[string]string {
	if now.Deleting || now.Second != "" {
		return nil
	}
	if before.Second != "" {
		before = Snapshot{} // what went on under the other policy is news to this one
	}
	were, are := drained(before), drained(now)
	maps.DeleteFunc(are, func(node, _ string) bool { _, was := were[node]; return was })
	return are
}

// Orphans lists the nodes that are being drained although the lease knows of no job that does, and says why they count
// as drained. A job that was terminated leaves its cordon, and a node on which nothing is missing that was not before.
func Orphans(s Snapshot) map[string]string {
	if s.Deleting || s.Second != "" {
		return nil
	}
	out := drained(s)
	maps.DeleteFunc(out, func(node, _ string) bool { return s.Jobs[node] })
	return out
}

// drained lists the nodes that are leaving and already miss an OSD, and says why they count as drained. It does so for
// Ceph alone: nodes with other storage have their job as soon as they announce that they leave.
func drained(s Snapshot) map[string]string {
	if s.Kind != storage.Ceph {
		return nil
	}
	var missing []string
	for name, osd := range s.OSDs {
		if osd.Pod != storage.PodReady && !osd.Replacing && s.Nodes[osd.Node].Leaving() {
			missing = append(missing, name)
		}
	}
	sortOSDs(missing)
	out := map[string]string{}
	for _, name := range missing {
		osd := s.OSDs[name]
		if _, has := out[osd.Node]; !has {
			out[osd.Node] = fmt.Sprintf("%s is %s, and %s", osd.Node, leavingBecause(s.Nodes[osd.Node]), describeOSD(name, osd))
		}
	}
	return out
}

// change collects what is different.
type change struct {
	reasons []string
	own     []string // what lockkeeper itself did
	daemons bool
	alarm   bool // an OSD's pod stopped serving
	// tampered: somebody else deleted or changed a budget that the keeper decides.
	tampered bool
	// Generations of the budgets that lockkeeper itself wrote.
	echo, provedEcho, monEcho int64
	// calm is for how long some of the reasons can wait for more.
	calm []time.Duration
}

// How long what can wait does. Something is back, which is of use when the data is whole, too; it is on its way back,
// and what it does next is worth telling; or it is a daemon on which no OSD depends. lockkeeper writes three budgets at
// once, and again soon, and nearly always something else is to be told meanwhile, which does for these echoes as well.
const (
	backAfter  = 250 * time.Millisecond
	stepAfter  = 2 * time.Second
	otherAfter = 500 * time.Millisecond
	echoAfter  = 5 * time.Second
)

// patience is that of the least patient reason.
func (c *change) patience() time.Duration {
	switch {
	case len(c.calm) < len(c.reasons):
		return 0
	case len(c.calm) > 0:
		return slices.Min(c.calm)
	case c.echo+c.provedEcho+c.monEcho > 0:
		return echoAfter
	default: // nothing but what lockkeeper did itself
		return backAfter
	}
}

func (c *change) add(format string, args ...any) {
	c.reasons = append(c.reasons, fmt.Sprintf(format, args...))
}

// addCalm adds a reason that can wait for others.
func (c *change) addCalm(most time.Duration, format string, args ...any) {
	c.add(format, args...)
	c.calm = append(c.calm, most)
}

// firstOf cuts reasons short: the keeper looks for itself, and a node with twenty OSDs needs no twenty reasons.
func firstOf(reasons []string) string {
	const most = 3
	if len(reasons) <= most {
		return strings.Join(reasons, ", ")
	}
	return fmt.Sprintf("%s, and %d more", strings.Join(reasons[:most], ", "), len(reasons)-most)
}

// changes goes from the urgent to what can wait, so that a reason that is cut short names what matters most.
func changes(before, now Snapshot) *change {
	c := &change{}
	switch {
	case now.Deleting && !before.Deleting:
		c.add("the policy is being deleted")
	case now.Generation != before.Generation:
		c.add("the policy changed")
		c.daemons = true
	}
	switch {
	case now.Second != before.Second && now.Second != "":
		c.add("policy %s was first to look after the same storage cluster", now.Second)
	case now.Second != before.Second:
		c.add("policy %s no longer looks after the same storage cluster", before.Second)
		c.daemons = true
	}
	switch {
	case now.Rival != before.Rival && now.Rival != "":
		c.add("policy %s looks after the same storage cluster and has to stand aside", now.Rival)
	case now.Rival != before.Rival:
		c.add("policy %s stood aside", before.Rival)
	case before.Claimed && !now.Claimed && now.Second == "":
		c.add("the claim to the storage cluster is gone from the policy's status")
	}
	if now.Second != "" {
		return c // the rest is the other keeper's
	}
	if now.Invalid != "" || before.Invalid != "" {
		return c // one of the two says nothing about the rest
	}
	c.osds(before.OSDs, now.OSDs)
	nodes := &change{}
	nodes.nodes(before.Nodes, now.Nodes, openNodes(before.OSDs, now.OSDs))
	if now.Kind == storage.Longhorn { // whose keeper watches nodes itself: this is in case that nobody does
		nodes.calm = slices.Repeat([]time.Duration{stepAfter}, len(nodes.reasons))
	}
	c.reasons, c.calm = append(c.reasons, nodes.reasons...), append(c.calm, nodes.calm...)
	c.budgets(before.Budgets, now.Budgets)
	c.otherDaemons(before.Daemons, now.Daemons)
	if now.LetGo != before.LetGo && now.LetGo != "" { // nobody may have deleted it in a minute
		c.addCalm(stepAfter, "%s may go out of turn", now.LetGo)
	}
	return c
}

func (c *change) osds(before, now map[string]OSD) {
	var back []string
	for _, name := range changedOSDs(before, now) {
		was, had := before[name]
		is, has := now[name]
		switch {
		case !has:
			c.add("%s has no pod any more", name)
			c.alarm = true
		case !had:
			c.addCalm(backAfter, "%s is new", name)
		case serving(is.Pod) != serving(was.Pod) && is.Pod == storage.PodReady:
			back = append(back, name+" is ready")
		case serving(is.Pod) != serving(was.Pod) && was.Pod != storage.PodReady:
			c.addCalm(stepAfter, "%s", describeOSD(name, is))
		case serving(is.Pod) != serving(was.Pod):
			c.add("%s", describeOSD(name, is))
			c.alarm = c.alarm || !is.Replacing
		case is.Pod == storage.PodReady && is.Life != was.Life:
			c.add("%s has another pod, or its containers were started again", name)
			c.alarm = true
		case is.FalseMark() && is.Mark != was.Mark:
			c.add("%s carries a mark that is not its own", name)
			c.alarm = true
		case is.Pod == storage.PodReady && is.Beside != was.Beside:
			c.add("%s %s", name, map[bool]string{true: "has a second pod", false: "has no second pod any more"}[is.Beside])
		case is.Node != was.Node:
			c.add("%s is on %s now", name, cmp.Or(is.Node, "no node"))
		case is.Replacing != was.Replacing:
			c.add("the replacement of %s %s", name, map[bool]string{true: "began", false: "is over"}[is.Replacing])
		}
	}
	for _, reason := range back { // last, since they matter least
		c.addCalm(backAfter, "%s", reason)
	}
}

func describeOSD(name string, o OSD) string {
	if o.Node != "" {
		name += " on " + o.Node
	}
	switch o.Pod {
	case storage.PodReady:
		return name + " is ready"
	case storage.PodNotReady:
		return name + " is not ready"
	case storage.PodNone:
		return name + " has no pod"
	default:
		return name + " is " + strings.ToLower(string(o.Pod))
	}
}

// openNodes are the nodes whose OSDs may all go already.
func openNodes(osds ...map[string]OSD) map[string]bool {
	out := map[string]bool{}
	for _, of := range osds {
		for _, osd := range of {
			if was, is := out[osd.Node]; osd.Node != "" {
				out[osd.Node] = osd.Open && (was || !is)
			}
		}
	}
	return out
}

func (c *change) nodes(before, now map[string]Node, open map[string]bool) {
	for _, name := range sortedKeys(before, now) {
		was, is := before[name], now[name]
		switch {
		case is.Gone != was.Gone:
			c.add("%s is %s", name, map[bool]string{true: "deleted", false: "there again"}[is.Gone])
		case is.Cordoned && !was.Cordoned && open[name]:
			c.addCalm(backAfter, "%s is cordoned", name) // as a job does that has the lease: what it evicts follows
		case is.Cordoned && !was.Cordoned:
			c.add("%s is cordoned", name)
		case is.Cordoned != was.Cordoned:
			c.addCalm(backAfter, "%s is uncordoned", name)
		case is.Tainted != was.Tainted && is.Tainted != "":
			c.add("%s is %s", name, leavingBecause(is))
		case is.Tainted != was.Tainted:
			c.add("%s is no longer tainted %s", name, was.Tainted)
		case is.NotReady != was.NotReady:
			c.add("%s is %s", name, map[bool]string{true: "not ready", false: "ready"}[is.NotReady])
		}
	}
}

func leavingBecause(n Node) string {
	switch {
	case n.Gone:
		return "deleted"
	case n.Tainted != "":
		return "tainted " + n.Tainted
	default:
		return "cordoned"
	}
}

// budgets reports lockkeeper's own changes, too. A keeper's write that was believed lost may still arrive after it has
// decided otherwise; only its echo here tells.
func (c *change) budgets(before, now map[string]Budget) {
	inCharge := slices.ContainsFunc(slices.Collect(maps.Values(now)), func(b Budget) bool { return b.Ours })
	for _, name := range sortedKeys(before, now) {
		was, had := before[name]
		is, has := now[name]
		if had && has && is.Spec == was.Spec && is.Ours == was.Ours || inCharge && !is.counts(has) &&
			(!was.counts(had) || has && is.Writer == kube.FieldOwner) {
			continue
		}
		switch {
		case !has:
			c.add("budget %s is deleted", name)
		case !had && !is.Ours:
			c.add("budget %s of somebody else appeared", name)
		case !had:
			c.add("budget %s appeared", name)
		default:
			c.written(name, is)
		}
		c.tampered = c.tampered || was.Ours && was.decided() &&
			(!has || is.Writer != kube.FieldOwner && is.Writer != kube.WatcherOwner)
		// What the keeper wrote itself it need not write again.
		c.daemons = c.daemons || !has && !was.decided() || has && !is.decided() && is.Writer != kube.FieldOwner &&
			is.Writer != kube.WatcherOwner
	}
}

// counts tells whether pods are under a budget, if there is one. Longhorn makes its own, and deletes them, all the
// time, and while ours decide they are empty: at birth, or by lockkeeper.
func (b Budget) counts(has bool) bool { return has && (b.Ours || !b.Empty) }

// written notes who changed a budget. What lockkeeper itself wrote is found by whoever looks for another reason.
func (c *change) written(name string, b Budget) {
	what := fmt.Sprintf("budget %s was changed by %s", name, cmp.Or(b.Writer, "somebody"))
	if !b.Ours || b.Writer != kube.FieldOwner {
		c.reasons = append(c.reasons, what)
		return
	}
	c.own = append(c.own, what)
	switch kube.BookKey(b.Daemon) {
	case kube.DaemonOSD:
		c.echo = b.Generation
	case kube.DaemonOSDProved:
		c.provedEcho = b.Generation
	case kube.DaemonMon:
		c.monEcho = b.Generation
	}
}

// decided: the budget says what the keeper decided, and not what follows from replicas.
func (b Budget) decided() bool { return kube.Decided(b.Daemon) }

func (c *change) otherDaemons(before, now map[string]Daemon) {
	for _, name := range sortedKeys(before, now) {
		was, is := before[name], now[name]
		switch {
		case is.Replicas != was.Replicas:
			c.add("%s: %d replicas instead of %d", name, is.Replicas, was.Replicas)
		case is.Ready > was.Ready:
			c.addCalm(otherAfter, "%s: %d of %d ready", name, is.Ready, is.Replicas)
		case is.Ready != was.Ready:
			c.add("%s: %d of %d ready", name, is.Ready, is.Replicas)
		case is.Mons != was.Mons:
			c.addCalm(otherAfter, "%s: there are pods of %q instead of %q", name, is.Mons, was.Mons)
		case is.Home != was.Home:
			c.add("%s: where else it could run has changed", name)
		default:
			continue
		}
		c.daemons = c.daemons || name != kube.DaemonMon
	}
}

// sortedKeys are the keys of all maps, so that one state is always told in the same words.
func sortedKeys[V any](ms ...map[string]V) []string {
	var all []string
	for _, m := range ms {
		all = slices.AppendSeq(all, maps.Keys(m))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// changedOSDs are the names of the OSDs that differ. Of ten thousand it is rarely more than one, so only these are
// sorted.
func changedOSDs(before, now map[string]OSD) []string {
	var out []string
	for name, is := range now {
		if was, had := before[name]; !had || was != is {
			out = append(out, name)
		}
	}
	for name := range before {
		if _, has := now[name]; !has {
			out = append(out, name)
		}
	}
	sortOSDs(out)
	return out
}

// sortOSDs sorts by number: osd.9 comes before osd.10.
func sortOSDs(names []string) {
	number := func(name string) int {
		n, err := strconv.Atoi(name[strings.LastIndex(name, ".")+1:])
		if err != nil {
			return -1
		}
		return n
	}
	slices.SortFunc(names, func(a,
		b string,
	) int {
		return cmp.Or(cmp.Compare(number(a), number(b)), strings.Compare(a, b))
	})
}
