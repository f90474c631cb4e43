package starter

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/jobs"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Objects are the cached objects that a snapshot is taken of: a policy, all nodes, and the rest of the policy's
// namespace. They are shared with the cache and only read.
type Objects struct {
	Now          time.Time
	Policy       *v1alpha1.MaintenancePolicy
	Policies     []v1alpha1.MaintenancePolicy // all that there are
	Nodes        []corev1.Node
	Pods         []corev1.Pod
	Budgets      []policyv1.PodDisruptionBudget
	Deployments  []appsv1.Deployment
	StatefulSets []appsv1.StatefulSet
}

// Take makes a snapshot. before, if any, remembers on which node an OSD was whose new pod does not say where it could
// run.
func Take(o Objects, before *Snapshot) Snapshot {
	s := Snapshot{Generation: o.Policy.Generation, Deleting: !o.Policy.DeletionTimestamp.IsZero()}
	s.Claimed, s.Kind = claimed(&o.Policy.Status), kube.KindOf(o.Policy)
	selectors, err := selectorsOf(o.Policy)
	if err != nil {
		s.Invalid = err.Error()
		return s
	}
	s.Second, s.Rival = second(o)
	s.Jobs = drainsOf(o.Policy.Status.Lease)
	nodes := newNodeNames(o.Nodes)
	open, opened := leftOut(o)
	s.OSDs, s.Opened = takeOSDs(o, selectors.osds, nodes, open, before), opened
	s.MarkedTemplates = markedTemplates(o, selectors.osds)
	s.Nodes = takeNodes(o, hosts(s.OSDs, o.Pods, selectors, nodes), nodes)
	s.Budgets = takeBudgets(o.Budgets)
	s.Daemons = takeDaemons(o, selectors)
	s.LetGo = takeLetGo(o, selectors)
	return s
}

// drainsOf are the nodes whose drains a policy's status names.
func drainsOf(l v1alpha1.LeaseStatus) map[string]bool {
	out := map[string]bool{}
	for _, claims := range [][]v1alpha1.LeaseClaim{l.Holders, l.Queue} {
		for i := range claims {
			if c := &claims[i]; c.Node != "" && c.WorkflowID == jobs.DrainNode.ID(c.Node) {
				out[c.Node] = true
			}
		}
	}
	return out
}

// claimed tells whether a policy's status says that its keeper looks after the storage cluster.
func claimed(s *v1alpha1.MaintenancePolicyStatus) bool {
	return s.Ceph != nil && s.Ceph.Claimed || s.Longhorn != nil && s.Longhorn.Claimed
}

// second names the policy that is in charge instead of this one, and rival the one that has to stand aside before this
// one may open anything.
func second(o Objects) (second, rival string) {
	if len(o.Policies) < 2 {
		return "", ""
	}
	pods := make([]labels.Set, len(o.Pods))
	for i := range o.Pods {
		pods[i] = o.Pods[i].Labels
	}
	name := func(key storage.ClusterKey) string {
		switch key {
		case storage.ClusterKey{}:
			return ""
		case storage.ClusterKey{Namespace: o.Policy.Namespace, Name: key.Name}:
			return key.Name
		default:
			return key.String()
		}
	}
	if charge, first := kube.Precedence(o.Policy, o.Policies, pods); !charge.OK {
		return name(first), ""
	}
	return "", name(kube.Waits(o.Policy, o.Policies))
}

// selectors are those of a policy, ready to match.
type selectors struct {
	osds    labels.Selector
	daemons map[string]labels.Selector // by kind
}

func selectorsOf(p *v1alpha1.MaintenancePolicy) (selectors, error) {
	out := selectors{daemons: map[string]labels.Selector{}}
	var err error
	if kube.KindOf(p) == storage.Longhorn { // which has no daemons beside its instance managers
		out.osds, err = metav1.LabelSelectorAsSelector(kube.OSDSelector(p))
		for _, kind := range kube.DaemonKinds {
			out.daemons[kind.Name] = labels.Nothing()
		}
		return out, err
	}
	if p.Spec.Ceph == nil {
		return selectors{}, fmt.Errorf("spec: exactly one of spec.ceph and spec.longhorn is required")
	}
	if out.osds, err = metav1.LabelSelectorAsSelector(kube.OSDSelector(p)); err != nil {
		return selectors{}, fmt.Errorf("spec.ceph.osds.selector: %w", err)
	}
	if out.osds.Empty() {
		return selectors{}, fmt.Errorf(
			"spec.ceph.osds.selector: is empty, so it would take every pod of the namespace for an OSD")
	}
	for _, kind := range kube.DaemonKinds {
		if out.daemons[kind.Name], err = metav1.LabelSelectorAsSelector(kind.Selector(p.Spec.Ceph.Daemons)); err != nil {
			return selectors{}, fmt.Errorf("selector of the %s pods in spec.ceph.daemons: %w", kind.Name, err)
		}
	}
	return out, nil
}

// takeOSDs begins with the Deployments: they know of OSDs that have no pod at all.
func takeOSDs(
	o Objects, selector labels.Selector, nodes nodeNames, open func(map[string]string) bool, before *Snapshot,
) map[string]OSD {
	idLabel := kube.IDLabel(o.Policy)
	out := make(map[string]OSD, len(o.Pods))
	pods := make(map[string]int, len(o.Pods))
	for i := range o.Deployments {
		d := &o.Deployments[i]
		if selector.Matches(labels.Set(d.Spec.Template.Labels)) {
			pinned := kube.PodNode(&corev1.Pod{Spec: d.Spec.Template.Spec})
			out[osdName(d.Spec.Template.Labels[idLabel], d.Name)] = OSD{
				Pod: storage.PodNone, Node: nodes.find(pinned),
				Replacing: replacing(d.Labels, d.Annotations),
			}
		}
	}
	for i := range o.Pods {
		pod := &o.Pods[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
			!selector.Matches(labels.Set(pod.Labels)) {
			continue // processes that ended are nobody's OSD
		}
		name := osdName(pod.Labels[idLabel], pod.Name)
		osd := out[name]
		pods[name]++
		osd.Replacing = osd.Replacing || replacing(pod.Labels, pod.Annotations)
		if state := kube.PodState(pod); rank(state) > rank(osd.Pod) {
			osd.Pod, osd.Mark, osd.Open = state, pod.Labels[storageview.MarkLabel], open(pod.Labels)
			osd.Life = storageview.Pod{UID: string(pod.UID), Restarts: kube.Restarts(pod)}.Mark()
			if node := kube.PodNode(pod); node != "" {
				osd.Node = nodes.find(node)
			}
		}
		osd.Beside = osd.Pod == storage.PodReady && pods[name] > 1
		out[name] = osd
	}
	if before != nil {
		rememberNodes(out, before.OSDs, nodes)
	}
	return out
}

// leftOut tells of a pod's labels whether our budgets leave the pod out, because its failure domain is open; and
// whether they leave any out.
func leftOut(o Objects) (is func(map[string]string) bool, some bool) {
	unmarked, _ := kube.BudgetNames(o.Policy)
	for i := range o.Budgets {
		b := &o.Budgets[i]
		if b.Name != unmarked || b.Labels[kube.LabelManagedBy] != kube.FieldOwner ||
			b.Spec.Selector == nil {
			continue
		}
		own := kube.OSDSelector(o.Policy).MatchExpressions
		for _, r := range b.Spec.Selector.MatchExpressions[min(len(own), len(b.Spec.Selector.MatchExpressions)):] {
			if r.Operator == metav1.LabelSelectorOpNotIn {
				return func(pod map[string]string) bool { return slices.Contains(r.Values, pod[r.Key]) }, true
			}
		}
	}
	return func(map[string]string) bool { return false }, false
}

// markedTemplates lists workloads of OSDs whose pods would be born with a mark.
func markedTemplates(o Objects, selector labels.Selector) (out []string) {
	note := func(kind, name string, template map[string]string) {
		if _, is := template[storageview.MarkLabel]; is && selector.Matches(labels.Set(template)) {
			out = append(out, kind+" "+name)
		}
	}
	for i := range o.Deployments {
		note("Deployment", o.Deployments[i].Name, o.Deployments[i].Spec.Template.Labels)
	}
	for i := range o.StatefulSets {
		note("StatefulSet", o.StatefulSets[i].Name, o.StatefulSets[i].Spec.Template.Labels)
	}
	slices.Sort(out)
	return out
}

// rememberNodes keeps an OSD where it was last seen if its new pod could run anywhere, or is pinned to the hostname of
// a node that is deleted: no node is left to tell its name.
func rememberNodes(now, before map[string]OSD, nodes nodeNames) {
	for name, osd := range now {
		was := before[name].Node
		if osd.Node == was || was == "" {
			continue
		}
		if osd.Node == "" || nodes.byName[osd.Node] == nil && nodes.byName[was] == nil {
			osd.Node = was
			now[name] = osd
		}
	}
}

// osdName is the OSD's name, or that of its pod or workload when no label says which OSD it is.
func osdName(id, fallback string) string {
	if id == "" {
		return fallback
	}
	return "osd." + id
}

func replacing(labels, annotations map[string]string) bool {
	_, labelled := labels[storageview.ReplacementKey]
	_, annotated := annotations[storageview.ReplacementKey]
	return labelled || annotated
}

// nodeNames finds nodes by what pods call them.
type nodeNames struct {
	byName     map[string]*corev1.Node
	byHostname map[string]string // the label kubernetes.io/hostname → name, where the two differ
}

func newNodeNames(nodes []corev1.Node) nodeNames {
	out := nodeNames{byName: make(map[string]*corev1.Node, len(nodes)), byHostname: map[string]string{}}
	for i := range nodes {
		n := &nodes[i]
		out.byName[n.Name] = n
		if host := n.Labels[corev1.LabelHostname]; host != "" && host != n.Name {
			out.byHostname[host] = n.Name
		}
	}
	return out
}

// find returns the name of the node that is called so by its name or its hostname. A node that is gone keeps the name
// that its pods have for it.
func (ns nodeNames) find(name string) string {
	if ns.byName[name] == nil && ns.byHostname[name] != "" {
		return ns.byHostname[name]
	}
	return name
}

// hosts are the nodes that matter: those with OSDs, and those with mons, whose cordon lets their mon go.
func hosts(osds map[string]OSD, pods []corev1.Pod, s selectors, nodes nodeNames) map[string]struct{} {
	out := map[string]struct{}{}
	for _, osd := range osds {
		out[osd.Node] = struct{}{}
	}
	for i := range pods {
		if s.daemons[kube.DaemonMon].Matches(labels.Set(pods[i].Labels)) {
			out[nodes.find(kube.PodNode(&pods[i]))] = struct{}{}
		}
	}
	delete(out, "")
	return out
}

// takeNodes takes those of the hosts that are not simply in service.
func takeNodes(o Objects, hosts map[string]struct{}, nodes nodeNames) map[string]Node {
	expiry := kube.Settings(&o.Policy.Spec).RemovalTaintExpiry
	out := map[string]Node{}
	for name := range hosts {
		if n := nodeOf(nodes.byName[name], o.Now, expiry); n != (Node{}) {
			out[name] = n
		}
	}
	return out
}

func nodeOf(n *corev1.Node, now time.Time, expiry time.Duration) Node {
	if n == nil {
		return Node{Gone: true}
	}
	signs := leaving.Of(n)
	out := Node{Cordoned: signs.Cordoned, Tainted: signs.Key(now, expiry), NotReady: !kube.NodeReady(n)}
	if at, ok := signs.Expires(expiry); ok && out.Tainted == leaving.RemovalTaint {
		out.Expires = at
	}
	return out
}

func takeBudgets(budgets []policyv1.PodDisruptionBudget) map[string]Budget {
	out := map[string]Budget{}
	for i := range budgets {
		b := &budgets[i]
		spec, err := json.Marshal(b.Spec)
		if err != nil {
			spec = []byte(b.ResourceVersion) // cannot happen with this type; then every change counts
		}
		out[b.Name] = Budget{
			Spec: string(spec), Writer: writer(b.ManagedFields), Generation: b.Generation,
			Ours: b.Labels[kube.LabelManagedBy] == kube.FieldOwner, Daemon: b.Labels[kube.LabelDaemon],
			Empty: kube.SelectsNothing(b),
		}
	}
	return out
}

// writer is the field manager that last wrote anything but the status.
func writer(fields []metav1.ManagedFieldsEntry) string {
	var last *metav1.ManagedFieldsEntry
	for i := range fields {
		f := &fields[i]
		if f.Subresource == "" && (last == nil || last.Time.Before(f.Time)) {
			last = f
		}
	}
	if last == nil {
		return ""
	}
	return last.Manager
}

// daemonName names the group that a pod with these labels belongs to.
func daemonName(kind kube.DaemonKind, podLabels map[string]string) string {
	if group := podLabels[kind.GroupLabel]; group != "" {
		return kind.Name + " " + group
	}
	return kind.Name
}

// stands: the pod has not ended, and nobody has told it to.
func stands(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// takeLetGo names the pods of OSDs and mons that a person has let go out of turn.
func takeLetGo(o Objects, s selectors) string {
	var names []string
	for i := range o.Pods {
		pod := &o.Pods[i]
		set := labels.Set(pod.Labels)
		ours := s.osds.Matches(set) || s.daemons[kube.DaemonMon].Matches(set)
		if ours && kube.LetGo(pod) && pod.DeletionTimestamp == nil {
			names = append(names, pod.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// takeDaemons counts as the static budgets do: the replicas that the workloads want, not the pods that happen to exist.
func takeDaemons(o Objects, s selectors) map[string]Daemon {
	out := map[string]Daemon{}
	for _, kind := range kube.DaemonKinds {
		count := func(workload, template map[string]string, replicas *int32) {
			if !s.daemons[kind.Name].Matches(labels.Set(workload)) {
				return
			}
			name := daemonName(kind, template)
			d := out[name]
			if replicas == nil {
				d.Replicas++ // the API's default
			} else {
				d.Replicas += int(*replicas)
			}
			out[name] = d
		}
		for i := range o.Deployments {
			d := &o.Deployments[i]
			count(d.Labels, d.Spec.Template.Labels, d.Spec.Replicas)
		}
		for i := range o.StatefulSets {
			d := &o.StatefulSets[i]
			count(d.Labels, d.Spec.Template.Labels, d.Spec.Replicas)
		}
	}
	var mons []string
	for i := range o.Pods {
		pod := &o.Pods[i]
		if isMon := s.daemons[kube.DaemonMon]; isMon.Matches(labels.Set(pod.Labels)) && stands(pod) {
			mons = append(mons, pod.Labels[kube.MonLabel])
		}
		if kube.PodState(pod) != storage.PodReady {
			continue
		}
		for _, kind := range kube.DaemonKinds {
			if !s.daemons[kind.Name].Matches(labels.Set(pod.Labels)) {
				continue
			}
			name := daemonName(kind, pod.Labels)
			d := out[name]
			d.Ready++
			out[name] = d
		}
	}
	if len(mons) > 0 {
		slices.Sort(mons)
		d := out[kube.DaemonMon]
		d.Mons = strings.Join(slices.Compact(mons), " ")
		out[kube.DaemonMon] = d
	}
	if d := out[kube.SoleKind]; d.Replicas == 1 {
		var pods []*corev1.Pod
		for i := range o.Pods {
			if s.daemons[kube.SoleKind].Matches(labels.Set(o.Pods[i].Labels)) {
				pods = append(pods, &o.Pods[i])
			}
		}
		d.Home = string(kube.HomeOf(pods, o.Nodes, nil, o.Now))
		out[kube.SoleKind] = d
	}
	return out
}
