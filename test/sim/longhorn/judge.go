package longhorn

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/internal/longhorn"
)

// This file judges. It knows nothing of how lockkeeper decides, only what must be true of replicas, nodes and budgets
// when an instance manager is evicted, a node is removed, or a budget or a pod changes.
//
// What happened by chance less than Options.Reaction ago lockkeeper need not know yet; and while it is dead, what has
// happened since it died. What was evicted counts in any case: that the budgets alone have to keep (I10).

// judge is what there was.
type judge struct {
	violations []string
	violated   map[string]bool
	guarding   bool // both of our budgets were there
	// guardingSince is since when they are.
	guardingSince time.Time
	watched       time.Time // since when a watcher runs
	// dark is why lockkeeper cannot see or act; from is since when, until is when that ended.
	dark        map[string]bool
	from, until time.Time
	went        map[string]time.Time // nodes whose instance managers were evicted and are not back, since when
	undecided   map[string]bool      // of them, those that went while somebody else's budgets decided, or none
	old         []oldSetting
	uncordoned  map[string]time.Time // when each node was last
	doomed      map[string]time.Time // nodes that are tainted or being deleted, since when
	released    map[string]time.Time // when the lease of a node was last seen to be held
	tampered    map[string]bool      // budgets of ours that a person has changed or deleted
	mended      time.Time            // when the last of them was as it should be again
	handedOver  time.Time            // when the admission policy came or went
	Counts
}

// Counts are how often something happened.
type Counts struct {
	Evicted, Judged, Refused, Removed, Waited, TwoBudgets, HeldBack, Moved int
}

type oldSetting struct {
	name, value string
	until       time.Time
}

func newJudge() judge {
	return judge{
		violated: map[string]bool{}, dark: map[string]bool{}, went: map[string]time.Time{},
		doomed: map[string]time.Time{}, uncordoned: map[string]time.Time{}, released: map[string]time.Time{},
		tampered: map[string]bool{}, undecided: map[string]bool{},
	}
}

func (w *World) violate(format string, args ...any) {
	v := fmt.Sprintf(format, args...)
	if w.violated[v] {
		return
	}
	w.violated[v] = true
	w.tell("VIOLATION %s", v)
	w.violations = append(w.violations, v)
}

// Violations are the invariants that did not hold.
func (w *World) Violations() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.violations)
}

// Dark tells that lockkeeper cannot see or act, for a reason, or can again.
func (w *World) Dark(why string, on bool) {
	w.happens(func() { w.darken(why, on) })
}

func (w *World) darken(why string, on bool) {
	now := time.Now()
	switch {
	case on:
		if len(w.dark) == 0 && now.Sub(w.until) >= w.opts.Reaction {
			w.from = now
		}
		w.dark[why] = true
	case w.dark[why]:
		if delete(w.dark, why); len(w.dark) == 0 {
			w.until = now
		}
	}
}

// fair is since when lockkeeper need not know what happened by chance.
func (w *World) fair() time.Time {
	now := time.Now()
	if len(w.dark) > 0 || now.Sub(w.until) < w.opts.Reaction {
		return w.from.Add(-w.opts.Reaction)
	}
	return now.Add(-w.opts.Reaction)
}

// decides tells whether our budgets are what decides, as we wrote them.
func (w *World) decides() bool {
	return w.guarding && w.policy != nil && w.policy.DeletionTimestamp == nil && w.emptied() && len(w.tampered) == 0 &&
		time.Since(w.mended) >= w.opts.Reaction && time.Since(w.handedOver) >= 2*w.opts.Reaction
}

// restored notes that our budgets say again what we want.
func (w *World) restored() {
	if len(w.tampered) == 0 {
		return
	}
	for name := range w.tampered {
		if b := w.budgets[name]; isOurs(b) && (b.ManagedFields[0].Manager == string(byUs) ||
			b.ManagedFields[0].Manager == string(byWatcher)) {
			delete(w.tampered, name)
		}
	}
	if len(w.tampered) == 0 {
		w.mended = time.Now()
	}
}

// said are the values that a setting had since then.
func (w *World) said(name string, since time.Time) []string {
	out := []string{w.settings[name]}
	for _, o := range w.old {
		if o.name == name && !o.until.Before(since) {
			out = append(out, o.value)
		}
	}
	return out
}

// noteStays is called when a node is cordoned or uncordoned.
func (w *World) noteStays(name string) {
	if n := w.nodes[name]; n != nil && !n.Spec.Unschedulable {
		w.uncordoned[name] = time.Now()
	}
}

// noteHolders notes whose leases are held, as far as the policy's status tells.
func (w *World) noteHolders() {
	if w.policy == nil {
		return
	}
	for _, h := range w.policy.Status.Lease.Holders {
		w.released[h.Node] = time.Now()
	}
	if len(w.policy.Status.Lease.Queue) > 0 {
		w.Waited++
	}
}

func (w *World) holds(node string, since time.Time) bool {
	w.noteHolders()
	return !w.released[node].Before(since) && !w.released[node].IsZero()
}

// asked tells whether a node was asked to leave at any time since then, in a way that Longhorn itself knows.
func (w *World) asked(n *corev1.Node, since time.Time) bool {
	return n.Spec.Unschedulable || n.DeletionTimestamp != nil || !w.uncordoned[n.Name].Before(since) &&
		!w.uncordoned[n.Name].IsZero() || w.holds(n.Name, since)
}

// wentAt is since when the instance manager of a node is away because it was evicted; zero: it is not.
func (w *World) wentAt(node string) time.Time { return w.went[node] }

// noteReturned forgets who went and is back.
func (w *World) noteReturned() {
	for node := range w.went {
		m := w.managers[managerName(node)]
		if w.nodes[node] == nil || m != nil && m.state == running && w.serves(node) {
			delete(w.went, node)
		}
	}
}

// judgeEviction is called before the instance manager of a node goes because somebody evicted it.
func (w *World) judgeEviction(p *corev1.Pod) {
	x := p.Spec.NodeName
	if p.Namespace != Key.Namespace || p.Labels[kube.LonghornComponent] != kube.InstanceManager || !w.serves(x) {
		return
	}
	w.Evicted++
	defer func() {
		if _, is := w.went[x]; !is {
			w.went[x], w.undecided[x] = time.Now(), !w.decides()
		}
	}()
	if !w.decides() {
		return
	}
	w.Judged++
	since := w.fair()
	policies := w.said(settingDrainPolicy, since)
	for _, name := range sorted(w.volumes) {
		if v := w.volumes[name]; v.engine == x && v.state == attached && v.since.Before(since) {
			w.violate("I6: %s is evicted, and the engine of %s runs there", x, name)
		}
	}
	if !slices.Contains(w.said(settingAutoscaler, since), "true") && !w.asked(w.nodes[x], since) {
		w.violate("%s is evicted, which nobody asked to leave while Longhorn's setting is off", x)
	}
	if slices.Contains(policies, string(longhorn.AlwaysAllow)) {
		return
	}
	for _, name := range sorted(w.replicas) {
		r := w.replicas[name]
		if r.node != x || !r.used() || !r.since.Before(since) {
			continue
		}
		if len(policies) == 1 && policies[0] == string(longhorn.BlockForEviction) {
			w.violate("%s is evicted, and %s is there, with the policy %s", x, name, policies[0])
		}
		w.judgeLast(r, since, policies)
		w.judgeTogether(r, since)
	}
}

// judgeLast: there is another copy that can be used.
func (w *World) judgeLast(r *replica, since time.Time, policies []string) {
	n := w.nodes[r.node]
	removed := (n.DeletionTimestamp != nil || len(n.Spec.Taints) > 0) && w.doomed[n.Name].Before(since)
	idle := r.idle() || recent(r.woken, since)
	if !r.whole() || slices.Contains(policies, string(longhorn.AllowIfReplicaIsStopped)) && idle && !removed &&
		w.asked(n, since) {
		return
	}
	for _, o := range w.replicas {
		if o.volume != r.volume || o.node == r.node {
			continue
		}
		if (o.whole() || recent(o.fell, since)) && w.served(o.node, since) {
			return
		}
	}
	w.violate("I6: the last healthy replica of %s goes with %s", r.volume, r.node)
}

func recent(at, since time.Time) bool { return !at.IsZero() && !at.Before(since) }

// served tells whether a node's instance manager serves, or did until it fell by chance since then.
func (w *World) served(node string, since time.Time) bool {
	if _, went := w.went[node]; went {
		return false
	}
	m := w.managers[managerName(node)]
	return w.serves(node) || m != nil && recent(m.fell, since) || recent(w.gone[node], since)
}

// judgeTogether: no other node with the volume is away because it was let go.
func (w *World) judgeTogether(r *replica, since time.Time) {
	for _, name := range sorted(w.replicas) {
		o := w.replicas[name]
		at, went := w.went[o.node]
		n := w.nodes[o.node]
		if !went || o.volume != r.volume || o.node == r.node || n == nil || !o.used() || !o.since.Before(since) ||
			time.Since(at) >= w.turn()-w.opts.Reaction {
			continue // of one whose turn is over nobody waits for ever
		}
		if !nodeReady(n) && !isLeaving(n, w.expiry()) {
			continue // the machine died, which holds up nobody
		}
		w.violate("I6: %s and %s go together, and share %s", o.node, r.node, r.volume)
	}
}

func (w *World) turn() time.Duration { return w.policy.Spec.Longhorn.TurnTimeout.Duration }

// expiry is the age from which a removal taint does not count.
func (w *World) expiry() time.Duration {
	if w.policy == nil {
		return w.opts.TaintExpiry
	}
	return w.policy.Spec.Longhorn.RemovalTaintExpiry.Duration
}

func isLeaving(n *corev1.Node, expiry time.Duration) bool {
	return leaving.Of(n).How(time.Now(), expiry) != leaving.Not
}

// judgeRemoval is called before a machine goes for good that an autoscaler has emptied, with all that is on it.
func (w *World) judgeRemoval(x string) {
	at, went := w.went[x]
	if !went || w.undecided[x] || !w.decides() {
		return
	}
	since := w.fair()
	if then := at.Add(-w.opts.Reaction); then.Before(since) {
		since = then
	}
	if slices.Contains(w.said(settingDrainPolicy, since), string(longhorn.AlwaysAllow)) ||
		slices.Contains(w.said(settingDrainPolicy, since), string(longhorn.AllowIfReplicaIsStopped)) ||
		slices.Contains(w.said(settingAutoscaler, since), "false") {
		return
	}
	for _, r := range w.replicas {
		if r.node != x || !r.whole() || !r.since.Before(since) {
			continue
		}
		other := false
		for _, o := range w.replicas {
			other = other || o.volume == r.volume && o.node != x && (o.whole() || recent(o.fell, since)) &&
				(w.nodes[o.node] != nil || recent(w.gone[o.node], since))
		}
		if !other {
			w.violate("I6: the last copy of %s is removed with %s", r.volume, x)
		}
	}
}

// judgeBudgets: each instance manager is under one budget, or under none because its node is open (I2).
func (w *World) judgeBudgets() {
	w.noteHolders()
	if !w.guarding || len(w.tampered) > 0 || !w.emptied() || w.policy == nil || w.policy.DeletionTimestamp != nil {
		return
	}
	unmarked, marked := w.ours()
	for _, key := range sorted(w.pods) {
		p := w.pods[key]
		if p.Labels[kube.LonghornComponent] != kube.InstanceManager || p.DeletionTimestamp != nil {
			continue
		}
		over := w.over(p)
		i := slices.IndexFunc(over, func(b *policyv1.PodDisruptionBudget) bool { return w.full[b.Name] })
		switch {
		case len(over) > 1 && i >= 0:
			// Until Longhorn's own of before the hand-over, or those that nobody emptied at birth, are empty.
			if w.TwoBudgets++; !w.oneWriter && w.decides() && w.knows(over[i]) {
				w.violate("I2: %s has been under two budgets since %s was made", p.Name, over[i].Name)
			}
		case len(over) > 1:
			w.violate("I2: %s is under two budgets", p.Name)
		case len(over) == 1:
		case time.Since(w.handedOver) < 2*w.opts.Reaction: // what was decided before may be on its way
		case !isOurs(unmarked) || !isOurs(marked) || !w.leavesOut(unmarked, p) && !w.leavesOut(marked, p):
			w.violate("I2: %s is under no budget", p.Name)
		}
	}
}

// knows tells whether lockkeeper has had the time to empty a budget since it was made, or since ours are there.
func (w *World) knows(b *policyv1.PodDisruptionBudget) bool {
	fair := w.fair().Add(-w.opts.Reaction) // for the look, and for the writes, which begin anew when something happens
	return b.CreationTimestamp.Time.Before(fair) && w.guardingSince.Before(fair) && w.watched.Before(fair)
}

// Watched tells that a watcher runs from now on, or none: without one nobody hears of a budget that was made.
func (w *World) Watched(on bool) {
	w.happens(func() {
		if w.watched = time.Now(); !on {
			w.watched = w.watched.Add(1000 * time.Hour)
		}
	})
}

// leavesOut tells whether a budget would cover a pod if its node were not open.
func (w *World) leavesOut(b *policyv1.PodDisruptionBudget, p *corev1.Pod) bool {
	if !slices.Contains(leftOut(b), p.Labels[kube.LonghornNode]) {
		return false
	}
	s := b.Spec.Selector.DeepCopy()
	s.MatchExpressions = slices.DeleteFunc(s.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool {
		return e.Key == kube.LonghornNode && e.Operator == metav1.LabelSelectorOpNotIn
	})
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(p.Labels))
}

func labelSet(l map[string]string) labels.Set { return l }

// Plus adds up.
func (c Counts) Plus(o Counts) Counts {
	return Counts{
		Evicted: c.Evicted + o.Evicted, Judged: c.Judged + o.Judged, Refused: c.Refused + o.Refused,
		Removed: c.Removed + o.Removed, Waited: c.Waited + o.Waited, TwoBudgets: c.TwoBudgets + o.TwoBudgets,
		HeldBack: c.HeldBack + o.HeldBack, Moved: c.Moved + o.Moved,
	}
}
