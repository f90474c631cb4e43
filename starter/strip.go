package starter

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// strip takes from an object all that no snapshot needs, before it goes into the cache: a pod of ten thousand costs its
// labels, where it runs and how it is, and not its forty environment variables. Objects of other types pass unchanged.
func strip(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		return &corev1.Pod{
			ObjectMeta: stripPodMeta(o.ObjectMeta), Spec: stripPodSpec(o.Spec),
			Status: stripPodStatus(o.Status),
		}, nil
	case *corev1.Node:
		return &corev1.Node{
			ObjectMeta: stripMeta(o.ObjectMeta),
			Spec:       corev1.NodeSpec{Unschedulable: o.Spec.Unschedulable, Taints: o.Spec.Taints},
			Status: corev1.NodeStatus{
				Conditions: stripNodeConditions(o.Status.Conditions),
				NodeInfo:   corev1.NodeSystemInfo{BootID: o.Status.NodeInfo.BootID},
			},
		}, nil
	case *appsv1.Deployment:
		return &appsv1.Deployment{
			ObjectMeta: stripMeta(o.ObjectMeta),
			Spec:       appsv1.DeploymentSpec{Replicas: o.Spec.Replicas, Template: stripTemplate(o.Spec.Template)},
		}, nil
	case *appsv1.StatefulSet:
		return &appsv1.StatefulSet{
			ObjectMeta: stripMeta(o.ObjectMeta),
			Spec:       appsv1.StatefulSetSpec{Replicas: o.Spec.Replicas, Template: stripTemplate(o.Spec.Template)},
		}, nil
	case *policyv1.PodDisruptionBudget:
		meta := stripMeta(o.ObjectMeta)
		meta.Generation = o.Generation // by which the keeper knows its own writes
		meta.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: writer(o.ManagedFields)}}
		return &policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: o.Spec}, nil
	case *cephv1alpha1.CephOSD:
		return stripCephOSD(o), nil
	}
	return object, nil
}

func stripMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		DeletionTimestamp: m.DeletionTimestamp, Labels: m.Labels,
	}
	if v, ok := m.Annotations[storageview.ReplacementKey]; ok {
		out.Annotations = map[string]string{storageview.ReplacementKey: v}
	}
	return out
}

// stripPodMeta keeps of a CephOSD's pod what people may write on it, and who did.
func stripPodMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	out := stripMeta(m)
	if _, owned := m.Labels[podspec.OwnerLabel]; !owned {
		return out
	}
	for _, name := range []string{
		podspec.HostAnnotation, podspec.DataAnnotation, podspec.StateAnnotation,
		podspec.RemoveAnnotation,
	} {
		if v, ok := m.Annotations[name]; ok {
			if out.Annotations == nil {
				out.Annotations = map[string]string{}
			}
			out.Annotations[name] = v
		}
	}
	out.ManagedFields = stripFields(m.ManagedFields)
	return out
}

// stripCephOSD keeps which OSDs there should be, and whether they are. That a template has changed its generation
// tells.
func stripCephOSD(o *cephv1alpha1.CephOSD) *cephv1alpha1.CephOSD {
	meta := stripMeta(o.ObjectMeta)
	meta.Generation = o.Generation
	out := &cephv1alpha1.CephOSD{
		ObjectMeta: meta, Spec: cephv1alpha1.CephOSDSpec{Storage: o.Spec.Storage},
		Status: cephv1alpha1.CephOSDStatus{ObservedGeneration: o.Status.ObservedGeneration},
	}
	for _, c := range o.Status.Conditions {
		if c.Type == cephv1alpha1.ConditionUpToDate {
			out.Status.Conditions = []metav1.Condition{{Type: c.Type, Status: c.Status}}
		}
	}
	return out
}

func stripTemplate(t corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: t.Labels}, Spec: stripPodSpec(t.Spec)}
}

// stripPodSpec keeps where a pod runs, or where it must.
func stripPodSpec(s corev1.PodSpec) corev1.PodSpec {
	out := corev1.PodSpec{NodeName: s.NodeName}
	if host, ok := s.NodeSelector[corev1.LabelHostname]; ok {
		out.NodeSelector = map[string]string{corev1.LabelHostname: host}
	}
	if s.Affinity != nil && s.Affinity.NodeAffinity != nil {
		if required := s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			out.Affinity = &corev1.Affinity{
				NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required},
			}
		}
	}
	return out
}

func stripPodStatus(s corev1.PodStatus) corev1.PodStatus {
	out := corev1.PodStatus{Phase: s.Phase}
	if n := kube.Restarts(&corev1.Pod{Status: s}); n > 0 { // all containers as one
		out.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: int32(n)}} //nolint:gosec // as many as an int32 counts
	}
	for _, c := range s.Conditions {
		if c.Type == corev1.PodReady {
			out.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return out
}

// stripNodeConditions keeps the answers and since when they are so, by which health checks go, and not the time of the
// last heartbeat, so that a heartbeat changes nothing.
func stripNodeConditions(conditions []corev1.NodeCondition) (out []corev1.NodeCondition) {
	for _, c := range conditions {
		out = append(out, corev1.NodeCondition{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime})
	}
	return out
}
