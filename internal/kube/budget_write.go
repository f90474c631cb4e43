package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
)

// This file writes one budget, and tells whether somebody else's stands in the way.

// write is what came of one budget.
type write struct {
	changed bool
	is      budget.Written // the budget as it is now; zero: there is none of ours
	// conflict names a budget of somebody else that covers the same pods. moved: it has changed since it was read.
	conflict, moved string
}

// applyBudget creates or updates one budget of ours. existing is every budget of the namespace; a foreign one that
// covers the same pods would make each of their evictions fail with a 500, so then nothing is created.
func (c *Cluster) applyBudget(
	ctx context.Context, existing read, want *policyv1.PodDisruptionBudget, covers *metav1.LabelSelector,
) (write, error) {
	have, _ := find(existing.budgets, want.Name)
	conflict, left, err := c.conflict(ctx, existing.budgets, want, covers)
	if err != nil {
		return write{}, err
	}
	if existing.moved(have, want.Labels[LabelDaemon]) {
		return write{moved: want.Name}, nil
	}
	budgets := c.typed.PolicyV1().PodDisruptionBudgets(want.Namespace)
	switch {
	case have == nil && conflict != "":
		return write{conflict: conflict}, nil
	case have == nil:
		made, err := budgets.Create(ctx, want, metav1.CreateOptions{FieldManager: FieldOwner})
		if err != nil {
			return write{}, err
		}
		return write{changed: true, is: written(made)}, c.replaced(ctx, left, want)
	case !ours(have):
		return write{
			conflict: fmt.Sprintf("PodDisruptionBudget %s/%s exists and is not lockkeeper's: rename or delete it",
				have.Namespace, have.Name),
		}, nil
	case equality.Semantic.DeepEqual(have.Spec, want.Spec) && !existing.fence && len(relabel(have, want)) == 0:
		return write{conflict: conflict, is: written(have)}, c.replaced(ctx, left, want)
	}
	patch, err := replaceSpec(have, want, existing)
	if err != nil {
		return write{}, err
	}
	made, err := budgets.Patch(ctx, have.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: FieldOwner})
	if existing.before != nil && apierrors.IsInvalid(err) {
		return write{moved: want.Name}, nil // which is what a test that fails is called
	}
	if err != nil {
		return write{}, err
	}
	return write{changed: true, conflict: conflict, is: written(made)}, c.replaced(ctx, left, want)
}

// replaceSpec is a patch that replaces the whole spec of one budget. Not an update: that one fails when the disruption
// controller writes the status in between, and it does so just when pods come and go, which is when we are in a hurry.
// If it lets pods go, only if nobody has changed the spec, or raised an alarm, since have was read.
func replaceSpec(have, want *policyv1.PodDisruptionBudget, existing read) ([]byte, error) {
	patch := []operation{{"test", "/metadata/uid", have.UID}}
	alarm, has := have.Annotations[AlarmAnnotation]
	switch unchanged := existing.before != nil; {
	case existing.fence && has: // an alarm that somebody raises meanwhile stays
		patch = append(patch, operation{"test", alarmPath, alarm},
			operation{"replace", alarmPath, budget.Fenced(alarm, time.Now())})
	case unchanged && has:
		patch = append(patch, operation{"test", "/metadata/generation", have.Generation}, operation{"test", alarmPath, alarm})
	case unchanged: // of version 0.1, which was closed before; it gets the annotation when it closes again
		patch = append(patch, operation{"test", "/metadata/generation", have.Generation})
	case len(have.Annotations) == 0:
		patch = append(patch, operation{"add", "/metadata/annotations", map[string]string{AlarmAnnotation: budget.NoAlarm}})
	case !has:
		patch = append(patch, operation{"add", alarmPath, budget.NoAlarm})
	}
	patch = append(patch, relabel(have, want)...)
	return json.Marshal(append(patch, operation{"replace", "/spec", want.Spec}))
}

// relabel has a budget say whether it decides deletions, too. One that is closed says nothing new: mons whose pods
// cannot be told apart are closed as well while Ceph does not answer.
func relabel(have, want *policyv1.PodDisruptionBudget) []operation {
	_, is := have.Labels[LabelGuards]
	value, should := want.Labels[LabelGuards]
	unknown := want.Labels[LabelDaemon] == DaemonMon && saysNothing(want)
	switch {
	case should && have.Labels[LabelGuards] != value && !unknown:
		return []operation{{"add", guardsPath, value}}
	case is && !should:
		return []operation{{"remove", guardsPath, nil}}
	default:
		return nil
	}
}

// saysNothing: the budget lets no pod go, and does not say which could.
func saysNothing(b *policyv1.PodDisruptionBudget) bool {
	return b.Spec.MinAvailable != nil && !leaves(b)
}

// leaves tells whether a budget leaves out any pods, which may go then.
func leaves(b *policyv1.PodDisruptionBudget) bool {
	return b.Spec.Selector != nil && slices.ContainsFunc(b.Spec.Selector.MatchExpressions,
		func(r metav1.LabelSelectorRequirement) bool { return r.Operator == metav1.LabelSelectorOpNotIn })
}

var guardsPath = "/metadata/labels/" + escaped(LabelGuards)

var alarmPath = "/metadata/annotations/" + escaped(AlarmAnnotation)

// escaped is a name as JSON patches write it in a path.
func escaped(name string) string { return strings.ReplaceAll(name, "/", "~1") }

func ours(b *policyv1.PodDisruptionBudget) bool { return b.Labels[LabelManagedBy] == FieldOwner }

// matchesEver tells whether a selector matches a pod, or will when it has a mark: the marked budget of another policy
// may outlive the marks that it counts.
func matchesEver(theirs labels.Selector, pod map[string]string) bool {
	marked := labels.Set{storageview.MarkLabel: "marked"}
	return theirs.Matches(labels.Set(pod)) || theirs.Matches(labels.Merge(pod, marked))
}

// conflict names a foreign budget that covers pods which ours covers, too: somebody else's, or that of another policy,
// whose keeper closes it when it notices that this one was first. left are those of policies that have stood aside:
// what is written takes their place. Pods are looked at only when a foreign budget exists at all.
func (c *Cluster) conflict(
	ctx context.Context, existing []policyv1.PodDisruptionBudget, want *policyv1.PodDisruptionBudget,
	covers *metav1.LabelSelector,
) (conflict string, left []*policyv1.PodDisruptionBudget, err error) {
	var foreign []*policyv1.PodDisruptionBudget
	for i := range existing {
		if !ours(&existing[i]) || existing[i].Labels[LabelPolicy] != want.Labels[LabelPolicy] {
			foreign = append(foreign, &existing[i])
		}
	}
	if len(foreign) == 0 {
		return "", nil, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(covers)
	if err != nil {
		return "", nil, err
	}
	pods, err := c.typed.CoreV1().Pods(want.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return "", nil, err
	}
	aside := c.standingAside(want)
	for _, b := range foreign {
		pod := coveredBy(b, pods.Items)
		if pod == "" {
			continue
		}
		is, err := aside(ctx, b)
		switch {
		case err != nil:
			return "", nil, err
		case is:
			left = append(left, b)
		case ours(b):
			conflict = cmp.Or(conflict, fmt.Sprintf("PodDisruptionBudget %s/%s of MaintenancePolicy %s also covers pod %s: "+
				"under two budgets no eviction succeeds; delete one of the two policies",
				b.Namespace, b.Name, b.Labels[LabelPolicy], pod))
		default:
			conflict = cmp.Or(conflict, fmt.Sprintf("PodDisruptionBudget %s/%s, which is not lockkeeper's, also covers pod %s: "+
				"under two budgets no eviction succeeds; delete it, and in Rook set "+
				"spec.disruptionManagement.managePodBudgets to false", b.Namespace, b.Name, pod))
		}
	}
	return conflict, left, nil
}

// coveredBy names a pod that a budget covers, or would with a mark; "": none.
func coveredBy(b *policyv1.PodDisruptionBudget, pods []corev1.Pod) string {
	theirs, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return ""
	}
	for i := range pods {
		if matchesEver(theirs, pods[i].Labels) {
			return pods[i].Name
		}
	}
	return ""
}
