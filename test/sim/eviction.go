package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/sim/kubeapi"
)

// This file is the eviction API and the disruption controller.

// disrupting is how long the controller takes it for granted that a pod whose eviction was allowed is on its way.
const disrupting = 2 * time.Minute

// over lists the budgets that cover a pod.
func (w *World) over(p *pod) []*policyv1.PodDisruptionBudget {
	var out []*policyv1.PodDisruptionBudget
	for _, name := range slices.Sorted(maps.Keys(w.budgets)) {
		if w.covering[name].Matches(labels.Set(p.labels())) {
			out = append(out, w.budgets[name])
		}
	}
	return out
}

// evict answers as the eviction API does, in the same order.
func (w *World) evict(p *pod, who owner, dry bool) error {
	if p.state != storage.PodPending && !p.leaving() {
		over := w.over(p)
		if len(over) > 1 {
			return kubeapi.TwoBudgets()
		}
		if len(over) == 1 {
			if err := w.spend(over[0], p, dry); err != nil {
				return err
			}
		}
	}
	if dry || p.leaving() {
		return nil
	}
	if who != byHammer || p.state != storage.PodPending { // those that cannot start are evicted hundreds of times a second
		w.tell("%s evicts %s", who, p.of.daemon())
	}
	if p.state == storage.PodNotReady && p.failing.After(w.computed) {
		// The disruption controller has not seen yet that the pod is not ready, and the eviction API asks it no more than
		// whether the budget was met. No budget that bears with one pod can keep it from that (ADR 10).
		w.crashed = time.Now()
	} else {
		w.judge(p)
	}
	w.remove(p)
	return nil
}

// spend takes an eviction out of a budget, if there is one left.
func (w *World) spend(b *policyv1.PodDisruptionBudget, p *pod, dry bool) error {
	s := &b.Status
	if p.state == storage.PodNotReady && s.CurrentHealthy >= s.DesiredHealthy && s.DesiredHealthy > 0 {
		w.slipped = w.slipped || !dry
		return nil // IfHealthyBudget, of whatever generation the status is
	}
	if s.ObservedGeneration < b.Generation {
		return kubeapi.TooManyRequests(b)
	}
	if s.DisruptionsAllowed <= 0 {
		return kubeapi.TooManyRequests(b)
	}
	if !dry {
		s.DisruptionsAllowed--
		s.DisruptedPods[p.name] = now()
	}
	return nil
}

// computeBudgets has the disruption controller look, after a moment.
func (w *World) computeBudgets() {
	if w.computing {
		return
	}
	w.computing = true
	w.later(budgetComputed, func() {
		w.computing, w.computed = false, time.Now()
		for _, name := range slices.Sorted(maps.Keys(w.budgets)) {
			w.compute(w.budgets[name])
		}
	})
}

func (w *World) compute(b *policyv1.PodDisruptionBudget) {
	s := &b.Status
	var healthy, pods int32
	controllers := map[*workload]bool{}
	disrupted := map[string]metav1.Time{}
	for _, p := range w.pods {
		if !w.covering[b.Name].Matches(labels.Set(p.labels())) {
			continue
		}
		pods++
		if p.made == nil {
			controllers[p.of] = true
		}
		if at, is := s.DisruptedPods[p.name]; is && !p.leaving() && time.Since(at.Time) < disrupting {
			disrupted[p.name] = at
			continue
		}
		if p.state == storage.PodReady {
			healthy++
		}
	}
	s.ObservedGeneration, s.CurrentHealthy, s.DisruptedPods = b.Generation, healthy, disrupted
	switch {
	case b.Spec.MinAvailable != nil:
		s.ExpectedPods, s.DesiredHealthy = pods, int32(b.Spec.MinAvailable.IntValue()) //nolint:gosec // a number of pods
	case b.Spec.MaxUnavailable != nil:
		// What is expected are the replicas of those controllers of which a pod exists: the flicker.
		s.ExpectedPods = 0
		for d := range controllers {
			s.ExpectedPods += int32(d.replicas) //nolint:gosec // 0 or 1
		}
		s.DesiredHealthy = max(s.ExpectedPods-int32(b.Spec.MaxUnavailable.IntValue()), 0) //nolint:gosec // a number of pods
	}
	s.DisruptionsAllowed = max(s.CurrentHealthy-s.DesiredHealthy, 0)
	if s.ExpectedPods == 0 {
		s.DisruptionsAllowed = 0
	}
}

// putBudget creates or changes a budget.
func (w *World) putBudget(b *policyv1.PodDisruptionBudget, who owner) (*policyv1.PodDisruptionBudget, error) {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	had := w.budgets[b.Name]
	b.Generation, b.Status = 1, policyv1.PodDisruptionBudgetStatus{DisruptedPods: map[string]metav1.Time{}}
	if had != nil {
		b.Generation, b.Status, b.UID = had.Generation, had.Status, had.UID
		if !equality.Semantic.DeepEqual(b.Spec, had.Spec) {
			b.Generation++
		}
	}
	w.version++
	b.ResourceVersion = fmt.Sprint(w.version)
	at := now()
	b.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: string(who), Operation: metav1.ManagedFieldsOperationUpdate, Time: &at},
	}
	w.budgets[b.Name], w.covering[b.Name] = b, selector
	w.tell("%s writes the %s budget: %s", who, daemonOf(b), describe(b))
	w.noteClosing(had)
	w.judgeWriting(had, b, who)
	w.noteParameters()
	w.computeBudgets()
	w.tellWatcher()
	return b.DeepCopy(), nil
}

func (w *World) dropBudget(name string, who owner) {
	b := w.budgets[name]
	if b == nil {
		return
	}
	w.tell("%s deletes the %s budget", who, daemonOf(b))
	if who == byUs && b.Labels[kube.LabelManagedBy] != kube.FieldOwner {
		w.violate("I9: lockkeeper deletes the budget %s, which is not its own", name)
	}
	if w.needsMonBudget() && who == byUs && b.Labels[kube.LabelDaemon] == kube.DaemonMon && !w.succeeded() {
		w.violate("I2: lockkeeper deletes the budget of the mons, and any of them may go")
	}
	w.noteClosing(b)
	delete(w.budgets, name)
	delete(w.covering, name)
	w.noteParameters()
	if unproved, proved := w.osdBudgets(); isOSDs(b) && (unproved == nil || proved == nil) &&
		(who != byUs || !w.succeeded()) {
		w.guarding = time.Time{}
		if who != byUs {
			w.tamper(w.opts.Reaction) // it is back at once, but not before
		}
	}
	w.tellWatcher()
}

// needsMonBudget: the policy has guarded OSDs for a while, and does not allow that the quorum is lost.
func (w *World) needsMonBudget() bool {
	if w.policy == nil || w.policy.DeletionTimestamp != nil || w.guarding.IsZero() ||
		time.Since(w.guarding) < w.opts.Reaction {
		return false
	}
	s := kube.Settings(&w.policy.Spec)
	alone := w.older == nil && w.elsewhere == nil && time.Since(w.others) > w.opts.Reaction // or it stands aside
	return s.ManagePodBudgets && !s.AllowMonQuorumLoss && alone
}

// isOSDs tells whether a budget is one of our two of the OSDs.
func isOSDs(b *policyv1.PodDisruptionBudget) bool {
	return b.Labels[kube.LabelDaemon] == kube.DaemonOSD || b.Labels[kube.LabelDaemon] == kube.DaemonOSDProved
}

func daemonOf(b *policyv1.PodDisruptionBudget) string {
	if d := b.Labels[kube.LabelDaemon]; d != "" {
		return d
	}
	return b.Name
}

// osdBudgets are our two budgets of the OSDs: that of those without a mark, and that of those with one; nil: there is
// none. They pass from one policy to another one after the other.
func (w *World) osdBudgets() (unproved, proved *policyv1.PodDisruptionBudget) {
	either := func(name func(string) string) *policyv1.PodDisruptionBudget {
		if b := w.budgets[name(w.key.Name)]; b != nil || w.older == nil {
			return b
		}
		return w.budgets[name(w.older.Name)]
	}
	return either(kube.DaemonBudgetName), either(kube.ProvedBudgetName)
}

// daemonBudget is that of the two which lets pods go at rest; nil: none of them is there.
func (w *World) daemonBudget() *policyv1.PodDisruptionBudget {
	unproved, proved := w.osdBudgets()
	if proved == nil {
		return unproved
	}
	return proved
}

// describeOSDs says in a few words what our budgets of the OSDs allow together.
func (w *World) describeOSDs() string {
	unproved, proved := w.osdBudgets()
	switch {
	case unproved == nil && proved == nil:
		return "none"
	case unproved == nil || proved == nil:
		return "only one of two budgets"
	}
	one, other := describe(proved), describe(unproved)
	switch {
	case one == other || resting(proved) && other == "closed":
		return one
	default:
		return fmt.Sprintf("marked: %s, unmarked: %s", one, other)
	}
}

// describe says in a few words what a budget allows.
func describe(b *policyv1.PodDisruptionBudget) string {
	if b == nil {
		return "none"
	}
	except := opened(b)
	least, most := b.Spec.MinAvailable, b.Spec.MaxUnavailable
	switch {
	case least == nil && most.IntValue() == 0 && len(except) == 0:
		return "closed"
	case least == nil:
		return fmt.Sprintf("%s may be unavailable", most)
	case len(except) > 0 && least.IntValue() >= budget.Everything:
		what := map[bool]string{true: "zone ", false: ""}[strings.HasPrefix(except[0], "zone-")]
		return fmt.Sprintf("only %s[%s] is open", what, strings.Join(except, " "))
	case least.IntValue() >= budget.Everything:
		return "closed"
	default:
		return fmt.Sprintf("at rest, %d must stay", least.IntValue())
	}
}

// opened are the zones, or the mons, that a budget leaves out.
func opened(b *policyv1.PodDisruptionBudget) []string {
	var out []string
	for _, e := range b.Spec.Selector.MatchExpressions {
		if e.Operator == metav1.LabelSelectorOpNotIn {
			out = append(out, e.Values...)
		}
	}
	slices.Sort(out)
	return out
}

// resting tells whether a budget lets a pod go that is not left out.
func resting(b *policyv1.PodDisruptionBudget) bool {
	return b != nil && b.Spec.MinAvailable != nil && b.Spec.MinAvailable.IntValue() < budget.Everything
}

// foreignBudget is of somebody else and over all OSDs.
func foreignBudget(most int) *policyv1.PodDisruptionBudget {
	n := intstr.FromInt32(int32(most)) //nolint:gosec // a number of pods
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: Key.Namespace, Name: "foreign", UID: "foreign"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &n,
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rook-ceph-osd"}},
		},
	}
}
