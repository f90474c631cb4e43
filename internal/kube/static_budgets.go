package kube

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

const monKind = "mon"

// DaemonKind is a kind of Ceph daemon beside the OSDs, and how its pods are told apart.
type DaemonKind struct {
	Name string // also the value of LabelDaemon
	// GroupLabel: pods with different values of it are not interchangeable and get budgets of their own.
	GroupLabel string
	Selector   func(v1alpha1.DaemonSelections) *metav1.LabelSelector
}

func orRook(s *metav1.LabelSelector, app string) *metav1.LabelSelector {
	if s != nil {
		return s
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

// DaemonKinds are the daemons with a budget beside the OSDs. That of the mons depends on quorum and on what is open,
// the others on their replicas alone.
var DaemonKinds = []DaemonKind{
	{Name: monKind, Selector: func(d v1alpha1.DaemonSelections) *metav1.LabelSelector {
		return orRook(d.Mon, "rook-ceph-mon")
	}},
	{Name: "mgr", Selector: func(d v1alpha1.DaemonSelections) *metav1.LabelSelector {
		return orRook(d.Mgr, "rook-ceph-mgr")
	}},
	{
		Name: "mds", GroupLabel: "rook_file_system",
		Selector: func(d v1alpha1.DaemonSelections) *metav1.LabelSelector { return orRook(d.MDS, "rook-ceph-mds") },
	},
	{
		Name: "rgw", GroupLabel: "rook_object_store",
		Selector: func(d v1alpha1.DaemonSelections) *metav1.LabelSelector { return orRook(d.RGW, "rook-ceph-rgw") },
	},
	{Name: "rbd-mirror", Selector: func(d v1alpha1.DaemonSelections) *metav1.LabelSelector {
		return orRook(d.RBDMirror, "rook-ceph-rbd-mirror")
	}},
}

// ApplyStaticBudgets implements activities.Budgets. It asks for the workloads of each kind, never for all pods.
func (c *Cluster) ApplyStaticBudgets(
	ctx context.Context, in activities.StaticBudgetsInput,
) (out activities.StaticBudgetsResult, err error) {
	key, leaving := in.Cluster, in.LeavingNodes
	p, err := c.policyAs(ctx, key, in.Policy)
	if err != nil {
		return out, err
	}
	if KindOf(p) == storage.Longhorn { // which has no such daemons
		out.Changed, err = c.holdBack(ctx, key, leaving.Stay)
		return out, err
	}
	list, err := c.typed.PolicyV1().PodDisruptionBudgets(key.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return out, err
	}
	unmarked, marked := BudgetNames(p)
	wanted := map[string]bool{unmarked: true, marked: true, MonBudgetName(p.Name): true}
	wanting, err := c.workloads(ctx, p)
	if err != nil {
		return out, err
	}
	pods, err := c.otherPods(ctx, p)
	if err != nil {
		return out, err
	}
	out.Hosts, out.HostsKnown = hostsOf(pods, wanting)
	for _, kind := range DaemonKinds {
		if kind.Name == monKind {
			continue
		}
		budgets, err := c.staticBudgets(ctx, p, kind, wanting, pods, leaving)
		if err != nil {
			return out, err
		}
		for _, b := range budgets {
			wanted[b.Name] = true
			r, err := c.applyBudget(ctx, read{budgets: list.Items}, b, b.Spec.Selector)
			if err != nil {
				return out, err
			}
			out.Changed, out.Conflict = out.Changed || r.changed, cmp.Or(out.Conflict, r.conflict)
		}
	}
	// What has no replicas any more, or only one that is no manager, must not be held by a budget of yesterday.
	for i := range list.Items {
		b := &list.Items[i]
		if !ours(b) || b.Labels[LabelPolicy] != p.Name || wanted[b.Name] {
			continue
		}
		if err := c.typed.PolicyV1().PodDisruptionBudgets(b.Namespace).Delete(ctx, b.Name,
			metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return out, err
		}
		out.Changed = true
	}
	return out, nil
}

// staticBudgets are the budgets that one kind of daemon should have now.
func (c *Cluster) staticBudgets(
	ctx context.Context, p *v1alpha1.MaintenancePolicy, kind DaemonKind, wanting map[string]workload, all []corev1.Pod,
	leaving activities.LeavingNodes,
) ([]*policyv1.PodDisruptionBudget, error) {
	selector := kind.Selector(selections(p))
	name := budgetPrefix(p.Name) + kind.Name
	groups, err := replicas(wanting, kind, selector)
	if err != nil {
		return nil, err
	}
	sole := kind.Name == SoleKind && groups[""] == 1
	pods, err := podsByGroup(all, kind, selector)
	if err != nil {
		return nil, err
	}
	var out []*policyv1.PodDisruptionBudget
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		least, ok := budget.GroupMinAvailable(groups[group], budget.Homeless(groupPods(pods[group]), leaving.Emptying))
		if sole {
			if least, err = c.soleMinAvailable(ctx, pods[group], leaving); err != nil {
				return nil, err
			}
			// No budget instead of one that asks for nobody: the disruption controller takes a while to count the pods of a
			// budget that was changed, and whoever is refused meanwhile (kubectl's drain) asks again only after five seconds.
			ok = least > 0
		}
		if !ok {
			continue
		}
		s, n := selector, name
		if group != "" {
			s = selector.DeepCopy()
			if s.MatchLabels == nil {
				s.MatchLabels = map[string]string{}
			}
			s.MatchLabels[kind.GroupLabel] = group
			n += "-" + strings.ToLower(group)
		}
		out = append(out, newBudget(p, n, kind.Name, s, budget.Spec{MinAvailable: least}))
	}
	return out, nil
}

// replicas counts the replicas that the workloads of a kind want, by group. The pods that happen to exist would not do:
// during an eviction there is one less.
func replicas(of map[string]workload, kind DaemonKind, selector *metav1.LabelSelector) (map[string]int, error) {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, w := range of {
		if s.Matches(labels.Set(w.labels)) {
			out[w.template[kind.GroupLabel]] += w.replicas
		}
	}
	return out, nil
}

// workload is a Deployment or a StatefulSet, and how many pods it wants.
type workload struct {
	labels, template map[string]string // the labels of the object, and those of its pods
	replicas         int
}

// workloads lists those of all kinds with static budgets, with as few requests as their selectors allow, by kind and
// name.
func (c *Cluster) workloads(ctx context.Context, p *v1alpha1.MaintenancePolicy) (map[string]workload, error) {
	queries, err := queries(p)
	if err != nil {
		return nil, err
	}
	out := map[string]workload{}
	for _, query := range queries {
		opts := metav1.ListOptions{LabelSelector: query}
		deployments, err := c.typed.AppsV1().Deployments(p.Namespace).List(ctx, opts)
		if err != nil {
			return nil, err
		}
		for i := range deployments.Items {
			d := &deployments.Items[i]
			out["Deployment/"+d.Name] = workload{d.Labels, d.Spec.Template.Labels, replicasOf(d.Spec.Replicas)}
		}
		sets, err := c.typed.AppsV1().StatefulSets(p.Namespace).List(ctx, opts)
		if err != nil {
			return nil, err
		}
		for i := range sets.Items {
			s := &sets.Items[i]
			out["StatefulSet/"+s.Name] = workload{s.Labels, s.Spec.Template.Labels, replicasOf(s.Spec.Replicas)}
		}
	}
	return out, nil
}

// queries are label selectors that select the workloads of all kinds with static budgets.
func queries(p *v1alpha1.MaintenancePolicy) ([]string, error) {
	var all []*metav1.LabelSelector
	for _, kind := range DaemonKinds {
		if kind.Name != monKind {
			all = append(all, kind.Selector(selections(p)))
		}
	}
	return together(all...)
}

// together are label selectors that select, each object at least once, what any of some selectors does. Those that ask
// for one value of the label "app", as all of Rook's do, become one.
func together(all ...*metav1.LabelSelector) ([]string, error) {
	const label = "app"
	var values, out []string
	for _, s := range all {
		if value, has := s.MatchLabels[label]; has && len(s.MatchLabels) == 1 && len(s.MatchExpressions) == 0 {
			values = append(values, value)
			continue
		}
		query, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			return nil, err
		}
		out = append(out, query.String())
	}
	if len(values) > 0 {
		in, err := labels.NewRequirement(label, selection.In, values)
		if err != nil {
			return nil, err
		}
		out = append(out, labels.NewSelector().Add(*in).String())
	}
	return out, nil
}

// selections are the policy's selectors of other daemons than OSDs.
func selections(p *v1alpha1.MaintenancePolicy) (out v1alpha1.DaemonSelections) {
	if p.Spec.Ceph != nil {
		out = p.Spec.Ceph.Daemons
	}
	return out
}

// soleMinAvailable is how many of a single manager must stay.
func (c *Cluster) soleMinAvailable(
	ctx context.Context, pods []*corev1.Pod, leaving activities.LeavingNodes,
) (int, error) {
	nodes, err := c.typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	emptied := slices.ContainsFunc(pods,
		func(p *corev1.Pod) bool { return slices.Contains(leaving.Emptying, p.Spec.NodeName) })
	return budget.SoleMinAvailable(HomeOf(pods, nodes.Items, leaving.Granted, time.Now()), emptied), nil
}

func groupPods(pods []*corev1.Pod) (out []budget.GroupPod) {
	for _, pod := range pods {
		out = append(out, budget.GroupPod{Node: pod.Spec.NodeName, State: PodState(pod), Unschedulable: unschedulable(pod)})
	}
	return out
}

// otherPods lists the pods of all kinds with static budgets, as workloads does. What two selectors select may come
// twice.
func (c *Cluster) otherPods(ctx context.Context, p *v1alpha1.MaintenancePolicy) (out []corev1.Pod, err error) {
	queries, err := queries(p)
	if err != nil {
		return nil, err
	}
	for _, query := range queries {
		list, err := c.typed.CoreV1().Pods(p.Namespace).List(ctx, metav1.ListOptions{LabelSelector: query})
		if err != nil {
			return nil, err
		}
		out = append(out, list.Items...)
	}
	return out, nil
}

// mostHosts is how many nodes a result names. With more, which nodes leave nearly always matters.
const mostHosts = 64

// hostsOf are the nodes on which pods are, in order. They are known as long as every pod that is wanted is ready:
// whoever moves then is not ready for a while, of which the watcher tells. Others come to a node untold.
func hostsOf(pods []corev1.Pod, wanting map[string]workload) (nodes []string, known bool) {
	missing := 0
	for _, w := range wanting {
		missing += w.replicas
	}
	seen := map[string]bool{}
	for i := range pods {
		pod := &pods[i]
		if seen[pod.Name] {
			continue
		}
		if seen[pod.Name] = true; PodState(pod) != storage.PodReady {
			return nil, false
		}
		nodes = append(nodes, pod.Spec.NodeName)
		missing--
	}
	if nodes = sortedNames(nodes); missing != 0 || len(nodes) > mostHosts {
		return nil, false
	}
	return nodes, true
}

// podsByGroup are the pods of a kind, by group.
func podsByGroup(
	all []corev1.Pod, kind DaemonKind, selector *metav1.LabelSelector,
) (map[string][]*corev1.Pod, error) {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, err
	}
	out, seen := map[string][]*corev1.Pod{}, map[string]bool{}
	for i := range all {
		pod := &all[i]
		if seen[pod.Name] || !s.Matches(labels.Set(pod.Labels)) {
			continue
		}
		seen[pod.Name] = true
		group := pod.Labels[kind.GroupLabel]
		out[group] = append(out[group], pod)
	}
	return out, nil
}

// unschedulable tells whether the scheduler found no node for a pod.
func unschedulable(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}

func replicasOf(n *int32) int {
	if n == nil {
		return 1 // the API's default
	}
	return int(*n)
}
