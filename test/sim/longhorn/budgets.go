package longhorn

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/test/sim/kubeapi"
)

// This file is the eviction API, the disruption controller, and the admission policy.

// owner is who did something.
type owner string

const (
	byPerson     owner = "a person"
	byHammer     owner = "a hammer"
	byAutoscaler owner = "an autoscaler"
	byLonghorn   owner = "longhorn"
	byUs         owner = kube.FieldOwner
	// The watcher has a name of its own: it may close our budgets, and change nothing else.
	byWatcher owner = kube.WatcherOwner
)

func (o owner) ours() bool { return o == byUs || o == byWatcher }

// disrupting is how long the controller takes it for granted that a pod whose eviction was allowed is on its way.
const disrupting = 2 * time.Minute

// over lists the budgets that cover a pod.
func (w *World) over(p *corev1.Pod) (out []*policyv1.PodDisruptionBudget) {
	if p.Namespace != Key.Namespace {
		return nil
	}
	for _, name := range sorted(w.budgets) {
		if w.covering[name].Matches(labels.Set(p.Labels)) {
			out = append(out, w.budgets[name])
		}
	}
	return out
}

// evict answers as the eviction API does, in the same order.
func (w *World) evict(p *corev1.Pod, who owner) error {
	if p.DeletionTimestamp != nil {
		return nil
	}
	if p.Status.Phase != corev1.PodPending {
		over := w.over(p)
		if len(over) > 1 {
			return kubeapi.TwoBudgets()
		}
		if len(over) == 1 {
			if err := w.spend(over[0], p); err != nil {
				w.Refused++
				return err
			}
		}
	}
	w.tell("%s evicts %s of %s", who, p.Name, p.Spec.NodeName)
	w.judgeEviction(p)
	w.remove(p)
	return nil
}

// spend takes an eviction out of a budget, if there is one left.
func (w *World) spend(b *policyv1.PodDisruptionBudget, p *corev1.Pod) error {
	s := &b.Status
	switch {
	case s.ObservedGeneration < b.Generation:
		return kubeapi.TooManyRequests(b)
	case !podReady(p) && s.CurrentHealthy >= s.DesiredHealthy && s.DesiredHealthy > 0:
		return nil // IfHealthyBudget
	case s.DisruptionsAllowed <= 0:
		return kubeapi.TooManyRequests(b)
	}
	s.DisruptionsAllowed--
	s.DisruptedPods[p.Name] = metav1.Now()
	w.later(disrupting+time.Second, w.computeBudgets)
	return nil
}

// computeBudgets has the disruption controller look, after a moment.
func (w *World) computeBudgets() {
	if w.computing {
		return
	}
	w.computing = true
	w.later(w.between(5*time.Millisecond, 60*time.Millisecond), func() {
		w.computing = false
		for _, name := range sorted(w.budgets) {
			w.compute(w.budgets[name])
		}
		w.stir("Status")
	})
}

func (w *World) compute(b *policyv1.PodDisruptionBudget) {
	s := &b.Status
	if b.Spec.MinAvailable == nil {
		// Instance managers have no scale: the controller gives up, and never says that it has seen the budget.
		s.DisruptionsAllowed = 0
		return
	}
	var healthy, pods int32
	disrupted := map[string]metav1.Time{}
	for _, key := range sorted(w.pods) {
		p := w.pods[key]
		if p.Namespace != b.Namespace || !w.covering[b.Name].Matches(labels.Set(p.Labels)) {
			continue
		}
		pods++
		if at, is := s.DisruptedPods[p.Name]; is && p.DeletionTimestamp == nil && time.Since(at.Time) < disrupting {
			disrupted[p.Name] = at // also of the next pod of that name
			continue
		}
		if podReady(p) {
			healthy++
		}
	}
	s.ObservedGeneration, s.CurrentHealthy, s.DisruptedPods = b.Generation, healthy, disrupted
	s.ExpectedPods, s.DesiredHealthy = pods, int32(b.Spec.MinAvailable.IntValue()) //nolint:gosec // a number of pods
	s.DisruptionsAllowed = max(s.CurrentHealthy-s.DesiredHealthy, 0)
	if s.ExpectedPods == 0 {
		s.DisruptionsAllowed = 0
	}
}

// putBudget creates or changes a budget.
func (w *World) putBudget(b *policyv1.PodDisruptionBudget, who owner) (*policyv1.PodDisruptionBudget, error) {
	if w.oneWriter && who == byLonghorn {
		empty(b)
	}
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	had := w.budgets[b.Name]
	b.Generation, b.Status = 1, policyv1.PodDisruptionBudgetStatus{DisruptedPods: map[string]metav1.Time{}}
	if had != nil {
		b.Generation, b.Status, b.UID = had.Generation+1, had.Status, had.UID
	}
	w.stamp(b)
	at := metav1.Now()
	b.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: string(who), Operation: metav1.ManagedFieldsOperationUpdate, Time: &at},
	}
	w.budgets[b.Name], w.covering[b.Name] = b, selector
	w.full[b.Name] = who == byLonghorn && !w.oneWriter
	if who != byLonghorn || w.guarding && w.full[b.Name] {
		w.tell("%s writes %s: %s", who, b.Name, describe(b))
	}
	if who.ours() {
		if !w.guarding && w.emptied() && w.bothOurs() {
			w.guarding, w.guardingSince = true, time.Now()
		}
		w.restored()
	}
	w.computeBudgets()
	w.stir("Budget")
	return b.DeepCopy(), nil
}

// emptied tells whether somebody empties Longhorn's budgets, so that ours decide.
func (w *World) emptied() bool {
	return w.oneWriter || w.policy != nil && w.policy.Spec.Longhorn.BudgetsEmptiedBy == v1alpha1.EmptiedByWorker &&
		w.policy.DeletionTimestamp == nil
}

// empty is what the admission policy makes of a budget of Longhorn's: deploy/longhorn/one-writer.yaml.
func empty(b *policyv1.PodDisruptionBudget) {
	for _, op := range []metav1.LabelSelectorOperator{metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist} {
		b.Spec.Selector.MatchExpressions = append(b.Spec.Selector.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: "lockkeeper.io/nothing", Operator: op})
	}
	none := intstr.FromInt32(0)
	b.Spec.MinAvailable = &none
	b.Annotations = map[string]string{"lockkeeper.io/emptied": "lockkeeper decides which instance managers may be evicted"}
}

func (w *World) makeOwnBudget(m *manager) {
	one := intstr.FromInt32(1)
	_, err := w.putBudget(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: Key.Namespace, Name: m.name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{
				kube.LonghornComponent: kube.InstanceManager, kube.LonghornNode: m.node,
				"longhorn.io/managed-by": "longhorn-manager", "longhorn.io/instance-manager-type": "aio",
			}},
		},
	}, byLonghorn)
	if err != nil {
		panic(err) // the selector is a constant
	}
}

func (w *World) dropBudget(name string, who owner) {
	b := w.budgets[name]
	if b == nil {
		return
	}
	if who != byLonghorn {
		w.tell("%s deletes %s", who, name)
	}
	if who.ours() && b.Labels[kube.LabelManagedBy] != kube.FieldOwner && !w.full[name] && w.emptied() &&
		time.Since(w.handedOver) >= 2*w.opts.Reaction {
		w.violate("I9: lockkeeper deletes the budget %s, which is Longhorn's and empty", name)
	}
	delete(w.budgets, name)
	delete(w.covering, name)
	delete(w.full, name)
	w.stir("Budget")
}

func isOurs(b *policyv1.PodDisruptionBudget) bool {
	return b != nil && b.Labels[kube.LabelManagedBy] == kube.FieldOwner
}

// ours are our two budgets: that of the pods without a mark, and that of those with one; nil: there is none.
func (w *World) ours() (unmarked, marked *policyv1.PodDisruptionBudget) {
	names := [2]string{"lockkeeper-longhorn-instance-manager", "lockkeeper-longhorn-instance-manager-proved"}
	return w.budgets[names[0]], w.budgets[names[1]]
}

func (w *World) bothOurs() bool {
	a, b := w.ours()
	return isOurs(a) && isOurs(b)
}

// describe says in a few words what a budget allows.
func describe(b *policyv1.PodDisruptionBudget) string {
	said := "closed"
	switch least := b.Spec.MinAvailable; {
	case least == nil:
		said = "quiet"
	case least.IntValue() < budget.Everything:
		said = fmt.Sprintf("%d must stay", least.IntValue())
	}
	if open := leftOut(b); len(open) > 0 {
		said += ", but for " + strings.Join(open, " ")
	}
	return said
}

// leftOut are the nodes that a budget leaves out.
func leftOut(b *policyv1.PodDisruptionBudget) (names []string) {
	for _, e := range b.Spec.Selector.MatchExpressions {
		if e.Key == kube.LonghornNode && e.Operator == metav1.LabelSelectorOpNotIn {
			names = append(names, e.Values...)
		}
	}
	slices.Sort(names)
	return names
}
