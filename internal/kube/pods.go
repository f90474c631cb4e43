package kube

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Rook's labels, the defaults of a policy that says nothing else.
const (
	DefaultIDLabel            = "ceph-osd-id"
	DefaultFailureDomainLabel = "topology-location-{type}"
)

// OSDSelector is the selector of the pods of the policy's storage daemons: OSDs, or Longhorn's instance managers.
func OSDSelector(p *v1alpha1.MaintenancePolicy) *metav1.LabelSelector {
	if KindOf(p) == storage.Longhorn {
		return instanceManagers()
	}
	if c := p.Spec.Ceph; c != nil && c.OSDs.Selector != nil {
		return c.OSDs.Selector
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rook-ceph-osd"}}
}

// IDLabel is the pod label with an OSD's number.
func IDLabel(p *v1alpha1.MaintenancePolicy) string {
	if c := p.Spec.Ceph; c != nil && c.OSDs.IDLabel != "" {
		return c.OSDs.IDLabel
	}
	return DefaultIDLabel
}

// FailureDomainLabel is the template of the pod label with the failure domain's name.
func FailureDomainLabel(p *v1alpha1.MaintenancePolicy) string {
	if KindOf(p) == storage.Longhorn {
		return LonghornNode
	}
	if c := p.Spec.Ceph; c != nil && c.OSDs.FailureDomainLabel != "" {
		return c.OSDs.FailureDomainLabel
	}
	return DefaultFailureDomainLabel
}

// ErrSelector is for a policy whose selector of OSD pods is none. Its text is the field's name.
var ErrSelector = errors.New("spec.ceph.osds.selector")

// StoragePods lists the policy's OSD pods, in one request.
func (c *Cluster) StoragePods(ctx context.Context, p *v1alpha1.MaintenancePolicy) ([]storageview.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(OSDSelector(p))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSelector, err)
	}
	list, err := c.typed.CoreV1().Pods(p.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	return storagePods(p, list.Items, selector), nil
}

func storagePods(p *v1alpha1.MaintenancePolicy, all []corev1.Pod, selector labels.Selector) []storageview.Pod {
	label := IDLabel(p)
	out := make([]storageview.Pod, 0, len(all))
	for i := range all {
		pod := &all[i]
		if ended(pod) || !selector.Matches(labels.Set(pod.Labels)) {
			continue // its processes are gone, and its controller has another one; or it is none
		}
		out = append(out, StoragePod(pod, label))
	}
	return out
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// HostedByPods implements activities.Policies.
func (c *Cluster) HostedByPods(ctx context.Context, p activities.Policy) (map[string]fencing.Hosted, error) {
	policy, is := p.Object.(*v1alpha1.MaintenancePolicy)
	if !is || KindOf(policy) != storage.Ceph {
		return nil, nil
	}
	osds, mons, err := c.DaemonPods(ctx, policy)
	return storageview.HostingByPods(osds, mons), err
}

// DaemonPods lists the policy's OSD pods and mon pods: in one request where both are told apart by the value of one
// label, as Rook's are.
func (c *Cluster) DaemonPods(
	ctx context.Context, p *v1alpha1.MaintenancePolicy,
) (osds []storageview.Pod, mons []storageview.MonPod, err error) {
	ofOSDs, err := metav1.LabelSelectorAsSelector(OSDSelector(p))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrSelector, err)
	}
	ofMons, err := metav1.LabelSelectorAsSelector(MonSelector(p))
	if err != nil {
		return nil, nil, fmt.Errorf("spec.ceph.daemons.mon: %w", err)
	}
	queries, err := together(OSDSelector(p), MonSelector(p))
	if err != nil {
		return nil, nil, err
	}
	var all []corev1.Pod
	seen := map[types.UID]bool{}
	for _, query := range queries {
		list, err := c.typed.CoreV1().Pods(p.Namespace).List(ctx, metav1.ListOptions{LabelSelector: query})
		if err != nil {
			return nil, nil, err
		}
		for i := range list.Items {
			if pod := &list.Items[i]; !seen[pod.UID] {
				seen[pod.UID] = true
				all = append(all, *pod)
			}
		}
	}
	return storagePods(p, all, ofOSDs), monPods(all, ofMons), nil
}

// StoragePod is one OSD pod as decisions see it.
func StoragePod(pod *corev1.Pod, idLabel string) storageview.Pod {
	id, err := strconv.Atoi(pod.Labels[idLabel])
	if err != nil || id < 0 {
		id = storageview.NoOSD
	}
	_, replacing := pod.Annotations[storageview.ReplacementKey]
	return storageview.Pod{
		Name: pod.Name, UID: string(pod.UID), Version: pod.ResourceVersion, Restarts: Restarts(pod), OSD: id,
		State: PodState(pod), Node: PodNode(pod), Labels: pod.Labels, Managed: metav1.GetControllerOf(pod) != nil,
		Replacing: replacing, LetGo: LetGo(pod),
	}
}

// Restarts counts how often containers of a pod were started again. A pod and this number name one life of its
// processes.
func Restarts(pod *corev1.Pod) int {
	n := 0
	for i := range pod.Status.ContainerStatuses {
		n += int(pod.Status.ContainerStatuses[i].RestartCount)
	}
	return n
}

// PodState tells how far a pod is from serving.
func PodState(pod *corev1.Pod) storage.PodState {
	switch {
	case pod.DeletionTimestamp != nil:
		return storage.PodTerminating
	case pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodPending:
		return storage.PodPending
	case podutils.IsPodReady(pod):
		return storage.PodReady
	default:
		return storage.PodNotReady
	}
}

// PodNode is the node that a pod runs on, or the only one that it could run on.
func PodNode(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	if host := pod.Spec.NodeSelector[corev1.LabelHostname]; host != "" {
		return host
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(terms) != 1 { // terms are alternatives
		return ""
	}
	for _, e := range append(terms[0].MatchExpressions, terms[0].MatchFields...) {
		if (e.Key == corev1.LabelHostname || e.Key == metav1.ObjectNameField) && e.Operator == corev1.NodeSelectorOpIn &&
			len(e.Values) == 1 {
			return e.Values[0]
		}
	}
	return ""
}

// StorageNodes lists all nodes, in one request.
func (c *Cluster) StorageNodes(ctx context.Context) ([]storageview.Node, error) {
	list, err := c.typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := make([]storageview.Node, 0, len(list.Items))
	for i := range list.Items {
		n := &list.Items[i]
		out = append(out, storageview.Node{
			Name: n.Name, Hostname: n.Labels[corev1.LabelHostname], Unschedulable: n.Spec.Unschedulable,
			RemovalTaint: RemovalTaint(n, time.Now()), NotReady: !NodeReady(n),
		})
	}
	return out, nil
}

// ReplacingOSDs lists the OSDs whose Deployment says that their disk is being replaced, in one request that is empty
// except during a replacement.
func (c *Cluster) ReplacingOSDs(ctx context.Context, p *v1alpha1.MaintenancePolicy) (map[int]bool, error) {
	list, err := c.typed.AppsV1().Deployments(p.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: storageview.ReplacementKey})
	if err != nil {
		return nil, err
	}
	out := map[int]bool{}
	for i := range list.Items {
		if id, ok := deploymentOSD(&list.Items[i], IDLabel(p)); ok {
			out[id] = true
		}
	}
	return out, nil
}

func deploymentOSD(d *appsv1.Deployment, idLabel string) (int, bool) {
	for _, labels := range []map[string]string{d.Labels, d.Spec.Template.Labels} {
		if id, err := strconv.Atoi(labels[idLabel]); err == nil {
			return id, true
		}
	}
	return 0, false
}
