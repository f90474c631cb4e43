package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Labels by which our budgets are recognised. What carries them is ours to change and to delete; nothing else is.
const (
	LabelManagedBy = "app.kubernetes.io/managed-by"
	LabelPolicy    = "lockkeeper.io/policy"
	LabelDaemon    = "lockkeeper.io/daemon"
	// LabelGuards is on the budgets that decide deletions, too, where deploy/guard-deletions is installed: it reads those
	// with the value GuardsDeletions. They decide by leaving out the pods that may go; a budget that keeps a number of
	// pods, whichever they are, cannot say of one of them whether it may be deleted.
	LabelGuards     = "lockkeeper.io/guards"
	GuardsDeletions = "deletions"
)

// AlarmAnnotation is the last alarm, on each of our budgets that follow decisions: the time, in an order of letters,
// and why.
const AlarmAnnotation = "lockkeeper.io/alarm"

// DaemonBudgetName is the name of the budget over a policy's storage daemons whose pods carry no mark. Version 0.1 had
// no other.
func DaemonBudgetName(policy string) string { return budgetPrefix(policy) + "osd" }

// budgetPrefix begins the names of a policy's budgets.
func budgetPrefix(policy string) string { return "lockkeeper-" + policy + "-" }

// ProvedBudgetName is the name of the budget over a policy's storage daemons whose pods are marked as proved.
func ProvedBudgetName(policy string) string { return DaemonBudgetName(policy) + "-proved" }

// Values of LabelDaemon on the budgets that follow the keeper's decisions. Those of the others are names of
// DaemonKinds.
const (
	DaemonOSD       = budget.Unmarked
	DaemonOSDProved = budget.Marked
	DaemonMon       = budget.OfMons
)

// Decided tells whether a budget with this value of LabelDaemon says what the keeper decided, and not what follows from
// replicas.
func Decided(daemon string) bool { return BookKey(daemon) != "" }

// ApplyBudgets implements activities.Budgets: one list, and one write for each budget that differs. A write is a create
// or a whole update of one object, so that there is no instant between the old and the new state.
func (c *Cluster) ApplyBudgets(ctx context.Context, in activities.BudgetInput) (activities.BudgetResult, error) {
	key := in.Cluster
	p, err := c.policyAs(ctx, key, in.Policy)
	if err != nil {
		return activities.BudgetResult{}, err
	}
	if KindOf(p) == storage.Longhorn {
		return c.applyLonghorn(ctx, p, in)
	}
	list, err := c.typed.PolicyV1().PodDisruptionBudgets(key.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return activities.BudgetResult{}, err
	}
	return c.applyAll(ctx, p, list.Items, in)
}

// applyAll writes the budgets of the storage daemons and those of the mons.
func (c *Cluster) applyAll(
	ctx context.Context, p *v1alpha1.MaintenancePolicy, budgets []policyv1.PodDisruptionBudget, in activities.BudgetInput,
) (activities.BudgetResult, error) {
	specs := in.Specs
	existing := read{budgets: budgets, before: in.Before, fence: in.Fence}
	if existing.before != nil {
		if out, err := c.makeMissing(ctx, p, existing, specs); out.Moved != "" || err != nil {
			return out, err
		}
		if late := c.late(ctx, p, budgets, specs); late != "" {
			return activities.BudgetResult{Moved: "what API servers know of them", Late: late}, nil
		}
	} else {
		c.note(in.Cluster, budgets)
	}
	out, err := c.applyOSDBudgets(ctx, p, existing, specs)
	if err != nil || out.Moved != "" {
		return out, err
	}
	if specs.Mons == nil {
		return out, c.removeBudget(ctx, budgets, MonBudgetName(p.Name))
	}
	err = c.applyDecided(ctx, existing, monBudget(p, *specs.Mons), MonSelector(p), &out)
	return out, err
}

// applyDecided writes one budget that follows the keeper's decisions, and adds to out what came of it.
func (c *Cluster) applyDecided(
	ctx context.Context, existing read, want *policyv1.PodDisruptionBudget, covers *metav1.LabelSelector,
	out *activities.BudgetResult,
) error {
	r, err := c.applyBudget(ctx, existing, want, covers)
	if err != nil {
		return err
	}
	out.Changed, out.Conflict, out.Moved = out.Changed || r.changed, cmp.Or(out.Conflict, r.conflict), r.moved
	if r.is != (budget.Written{}) {
		if out.Book == nil {
			out.Book = budget.Book{}
		}
		out.Book[BookKey(want.Labels[LabelDaemon])] = r.is
	}
	return nil
}

// read is what was read of a namespace's budgets: just now, and before the look that a decision rests on (nil: nothing
// is to be compared). fence: each is written even if it says already what it should.
type read struct {
	budgets []policyv1.PodDisruptionBudget
	before  budget.Book
	fence   bool
}

// moved tells whether a budget is another than before the look.
func (r read) moved(have *policyv1.PodDisruptionBudget, daemon string) bool {
	if r.before == nil {
		return false
	}
	was, had := r.before[BookKey(daemon)]
	if have == nil || !had {
		return had || have != nil
	}
	return was != written(have)
}

func written(b *policyv1.PodDisruptionBudget) budget.Written {
	return budget.Written{UID: string(b.UID), Generation: b.Generation, Alarm: b.Annotations[AlarmAnnotation]}
}

// ReadBudgets implements activities.Budgets.
func (c *Cluster) ReadBudgets(ctx context.Context, key storage.ClusterKey) (book budget.Book, others bool, err error) {
	list, err := c.typed.PolicyV1().PodDisruptionBudgets(key.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, false, err
	}
	book = budget.Book{}
	for i := range list.Items {
		switch b := &list.Items[i]; {
		case !ours(b) || b.Labels[LabelPolicy] != key.Name:
			others = others || !SelectsNothing(b)
		case Decided(b.Labels[LabelDaemon]):
			book[BookKey(b.Labels[LabelDaemon])] = written(b)
			// Of a lockkeeper from before deletions were guarded: it has to be written although it says the right thing.
			others = others || b.Labels[LabelDaemon] != DaemonMon && b.Labels[LabelGuards] != GuardsDeletions
		}
	}
	return book, others, nil
}

// makeMissing makes each budget that is missing, closed, although something was to open. Whoever raised an alarm since
// the look had no budget to write it on, so nothing opens before the next look, which reads the new budget first. As
// long as a budget cannot be made, the others do not open either, since its pods are under none of ours.
func (c *Cluster) makeMissing(
	ctx context.Context, p *v1alpha1.MaintenancePolicy, existing read, specs budget.Specs,
) (out activities.BudgetResult, err error) {
	closed := budget.Spec{MinAvailable: budget.Everything}
	wanted := []*policyv1.PodDisruptionBudget{
		markedBudget(p).of(p, closed), unmarkedBudget(p).of(p, closed),
	}
	if specs.Mons != nil {
		wanted = append(wanted, newBudget(p, MonBudgetName(p.Name), DaemonMon, MonSelector(p), closed))
	}
	for _, want := range wanted {
		if _, has := find(existing.budgets, want.Name); has {
			continue
		}
		covers := OSDSelector(p)
		if want.Labels[LabelDaemon] == DaemonMon {
			covers = MonSelector(p)
		}
		if err := c.applyDecided(ctx, read{budgets: existing.budgets}, want, covers, &out); err != nil {
			return out, err
		}
		out.Moved = want.Name
	}
	return out, nil
}

// applyOSDBudgets writes the two budgets of the OSDs. Their selectors never overlap, in any state, so each write is
// safe by itself. The one that lets pods go at rest, that of the marked pods, comes last if it is to let them go, and
// first otherwise.
func (c *Cluster) applyOSDBudgets(
	ctx context.Context, p *v1alpha1.MaintenancePolicy, existing read, specs budget.Specs,
) (activities.BudgetResult, error) {
	if specs.Unproved == nil {
		if _, split := find(existing.budgets, ProvedBudgetName(p.Name)); split {
			return activities.BudgetResult{},
				fmt.Errorf("a keeper of version 0.1 wants one budget over all OSDs, but there are two already: a newer keeper " +
					"has to go on")
		}
		all := newBudget(p, DaemonBudgetName(p.Name), DaemonOSD, except(OSDSelector(p), specs.Daemons), specs.Daemons)
		var out activities.BudgetResult
		err := c.applyDecided(ctx, existing, all, OSDSelector(p), &out)
		return out, err
	}
	if err := c.split(ctx, p, existing.budgets); err != nil {
		return activities.BudgetResult{}, err
	}
	var out activities.BudgetResult
	proved, unproved := markedBudget(p).of(p, specs.Daemons), unmarkedBudget(p).of(p, *specs.Unproved)
	order := []*policyv1.PodDisruptionBudget{proved, unproved}
	if !specs.Daemons.Quiet && specs.Daemons.MinAvailable < budget.Everything {
		slices.Reverse(order)
	}
	for _, want := range order {
		if err := c.applyDecided(ctx, existing, want, OSDSelector(p), &out); err != nil || out.Moved != "" {
			return out, err
		}
	}
	return out, nil
}

// split makes two budgets of the one that version 0.1 had, with no pod under none or under both at any instant: the
// budget of the marked pods is created while no pod is marked, so that it covers none; from then on each pod's own
// label moves it. The budget that was there leaves out marked pods with the write that follows.
func (c *Cluster) split(
	ctx context.Context, p *v1alpha1.MaintenancePolicy, existing []policyv1.PodDisruptionBudget,
) error {
	old, had := find(existing, unmarkedBudget(p).name)
	if _, split := find(existing, markedBudget(p).name); split || !had || !ours(old) || splitsByMark(old) {
		return nil
	}
	if err := c.unmark(ctx, p.Namespace, OSDSelector(p), func(int) {}); err != nil {
		return fmt.Errorf("take away the marks that an earlier keeper left: %w", err)
	}
	return nil
}

func splitsByMark(b *policyv1.PodDisruptionBudget) bool {
	return b.Spec.Selector != nil && slices.ContainsFunc(b.Spec.Selector.MatchExpressions,
		func(r metav1.LabelSelectorRequirement) bool { return r.Key == storageview.MarkLabel })
}

func find(existing []policyv1.PodDisruptionBudget, name string) (*policyv1.PodDisruptionBudget, bool) {
	for i := range existing {
		if existing[i].Name == name {
			return &existing[i], true
		}
	}
	return nil, false
}

// marked is a selector of those pods only that carry a mark, or of those only that carry none.
func marked(selector *metav1.LabelSelector, is bool) *metav1.LabelSelector {
	operator := metav1.LabelSelectorOpDoesNotExist
	if is {
		operator = metav1.LabelSelectorOpExists
	}
	out := selector.DeepCopy()
	out.MatchExpressions = append(out.MatchExpressions,
		metav1.LabelSelectorRequirement{Key: storageview.MarkLabel, Operator: operator})
	return out
}

// except is a selector that leaves out the pods whose label has one of the values.
func except(from *metav1.LabelSelector, spec budget.Spec) *metav1.LabelSelector {
	selector := from.DeepCopy()
	if len(spec.Except) > 0 {
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: spec.Key, Operator: metav1.LabelSelectorOpNotIn, Values: slices.Sorted(slices.Values(spec.Except)),
		})
	}
	return selector
}

// removeBudget deletes a budget of ours, if it is there.
func (c *Cluster) removeBudget(ctx context.Context, existing []policyv1.PodDisruptionBudget, name string) error {
	for i := range existing {
		b := &existing[i]
		if b.Name != name || !ours(b) {
			continue
		}
		if err := c.typed.PolicyV1().PodDisruptionBudgets(b.Namespace).Delete(ctx, name,
			metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// of is the budget as it says what a spec wants.
func (b daemonBudget) of(p *v1alpha1.MaintenancePolicy, spec budget.Spec) *policyv1.PodDisruptionBudget {
	return newBudget(p, b.name, b.daemon, marked(except(OSDSelector(p), spec), b.marked), spec)
}

func monBudget(p *v1alpha1.MaintenancePolicy, spec budget.Spec) *policyv1.PodDisruptionBudget {
	return newBudget(p, MonBudgetName(p.Name), DaemonMon, except(MonSelector(p), spec), spec)
}

func newBudget(
	p *v1alpha1.MaintenancePolicy, name, daemon string, selector *metav1.LabelSelector, spec budget.Spec,
) *policyv1.PodDisruptionBudget {
	// IfHealthyBudget: an unready pod may go only while the budget is met. AlwaysAllow would also let go of unready pods
	// whose daemon still serves.
	unhealthy := policyv1.IfHealthyBudget
	out := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: name,
			Labels:      map[string]string{LabelManagedBy: FieldOwner, LabelPolicy: p.Name, LabelDaemon: daemon},
			Annotations: map[string]string{AlarmAnnotation: budget.NoAlarm},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(p, v1alpha1.GroupVersion.WithKind("MaintenancePolicy")),
			},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector, UnhealthyPodEvictionPolicy: &unhealthy},
	}
	if spec.Quiet {
		none := intstr.FromInt32(0)
		out.Spec.MaxUnavailable = &none
	} else {
		least := intstr.FromInt32(int32(spec.MinAvailable)) //nolint:gosec // a number of pods
		out.Spec.MinAvailable = &least
	}
	if leavesOut(daemon, spec) {
		out.Labels[LabelGuards] = GuardsDeletions
	}
	return out
}

// leavesOut tells whether a budget decides by leaving out the pods that may go. That of mons that cannot be told apart
// keeps a majority of them instead, and those of mgr, mds, rgw and rbd-mirror keep all but one.
func leavesOut(daemon string, spec budget.Spec) bool {
	key := BookKey(daemon)
	return key == budget.Unmarked || key == budget.Marked ||
		key == budget.OfMons && (spec.Quiet || spec.MinAvailable >= budget.Everything)
}

// RemoveBudgets implements activities.Budgets. Those of the OSDs close first, then every mark goes, which moves the
// pods from one budget to the other, and only then both are deleted: no pod is under none of them, or under both,
// before that.
func (c *Cluster) RemoveBudgets(
	ctx context.Context, key storage.ClusterKey, progress func(done int), holds func() error,
) error {
	mine := labels.SelectorFromSet(labels.Set{LabelManagedBy: FieldOwner, LabelPolicy: key.Name}).String()
	budgets := c.typed.PolicyV1().PodDisruptionBudgets(key.Namespace)
	list, err := budgets.List(ctx, metav1.ListOptions{LabelSelector: mine})
	if err != nil {
		return err
	}
	if ofLonghorn(list.Items) {
		if _, err := c.holdBack(ctx, key, nil); err != nil {
			return err
		}
		if _, err := c.relocate(ctx, key, nil); err != nil {
			return err
		}
		all, err := budgets.List(ctx, metav1.ListOptions{})
		if err == nil {
			err = c.handBack(ctx, key.Namespace, all.Items)
		}
		if err != nil {
			return err
		}
	}
	if proved := markedOf(list.Items); proved != nil {
		if err := c.closeForGood(ctx, proved); err != nil {
			return err
		}
		// The budget's own selector tells whose marks they are, also when the policy is gone or speaks of other pods by now.
		if err := c.unmark(ctx, key.Namespace, closedSelector(proved.Spec.Selector), progress); err != nil {
			return err
		}
	}
	for i := range list.Items {
		if err := holds(); err != nil {
			return err
		}
		if err := budgets.Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// markedOf is the budget of the marked pods among those of one policy; nil: there is none. Its policy may be gone.
func markedOf(budgets []policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudget {
	for i := range budgets {
		if BookKey(budgets[i].Labels[LabelDaemon]) == budget.Marked {
			return &budgets[i]
		}
	}
	return nil
}

// closeForGood has a budget let none go but whom it leaves out already. If somebody wrote it meanwhile, an alarm say,
// it fails: what it left out before must not come back.
func (c *Cluster) closeForGood(ctx context.Context, have *policyv1.PodDisruptionBudget) error {
	want := have.DeepCopy()
	everything := intstr.FromInt32(budget.Everything)
	want.Spec.MinAvailable, want.Spec.MaxUnavailable = &everything, nil
	patch, err := replaceSpec(have, want, read{before: budget.Book{}})
	if err != nil {
		return err
	}
	_, err = c.typed.PolicyV1().PodDisruptionBudgets(have.Namespace).Patch(ctx, have.Name, types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: FieldOwner})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsInvalid(err):
		return fmt.Errorf("somebody else wrote PodDisruptionBudget %s/%s at the same moment", have.Namespace, have.Name)
	default:
		return err
	}
}
