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
	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/internal/wish"
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
		meta := stripMeta(o.ObjectMeta)
		if kube.OwnCordon(o) {
			meta.ManagedFields = kube.CordonFields
		}
		return &corev1.Node{
			ObjectMeta: meta,
			Spec:       corev1.NodeSpec{Unschedulable: o.Spec.Unschedulable, Taints: o.Spec.Taints},
			Status: corev1.NodeStatus{
				Conditions: stripNodeConditions(o.Status.Conditions),
				NodeInfo:   corev1.NodeSystemInfo{BootID: o.Status.NodeInfo.BootID},
			},
		}, nil
	case *appsv1.Deployment:
		return &appsv1.Deployment{
			ObjectMeta: stripMeta(o.ObjectMeta),
			Spec: appsv1.DeploymentSpec{
				Replicas: o.Spec.Replicas, Paused: o.Spec.Paused, Template: stripTemplate(o.Spec.Template),
			},
		}, nil
	case *appsv1.ReplicaSet:
		return stripReplicaSet(o), nil
	case *appsv1.DaemonSet:
		return stripDaemonSet(o), nil
	case *appsv1.StatefulSet:
		return &appsv1.StatefulSet{
			ObjectMeta: stripMeta(o.ObjectMeta),
			Spec: appsv1.StatefulSetSpec{
				Replicas: o.Spec.Replicas, Template: stripTemplate(o.Spec.Template), UpdateStrategy: o.Spec.UpdateStrategy,
				PodManagementPolicy: o.Spec.PodManagementPolicy, Ordinals: o.Spec.Ordinals,
			},
			Status: appsv1.StatefulSetStatus{UpdateRevision: o.Status.UpdateRevision},
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
	for _, name := range []string{storageview.ReplacementKey, kube.GoNowAnnotation} {
		if v, ok := m.Annotations[name]; ok {
			if out.Annotations == nil {
				out.Annotations = map[string]string{}
			}
			out.Annotations[name] = v
		}
	}
	return out
}

// stripReplicaSet keeps how many pods it wants, whose it is, and since when it has not been able to delete. A
// Deployment keeps ten of its old ones, most of which want no pod and have none.
func stripReplicaSet(o *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	out := &appsv1.ReplicaSet{ObjectMeta: stripMeta(o.ObjectMeta), Spec: appsv1.ReplicaSetSpec{Replicas: o.Spec.Replicas}}
	out.Labels, out.OwnerReferences = nil, stripOwners(o.OwnerReferences)
	for _, c := range o.Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure {
			out.Status.Conditions = []appsv1.ReplicaSetCondition{{
				Type: c.Type, Status: c.Status, Reason: c.Reason, LastTransitionTime: c.LastTransitionTime,
			}}
		}
	}
	return out
}

// stripDaemonSet keeps of which change its pods are to be, and how many of them may be away.
func stripDaemonSet(o *appsv1.DaemonSet) *appsv1.DaemonSet {
	meta := stripMeta(o.ObjectMeta)
	if v, ok := o.Annotations[appsv1.DeprecatedTemplateGeneration]; ok {
		meta.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: v}
	}
	return &appsv1.DaemonSet{
		ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{UpdateStrategy: o.Spec.UpdateStrategy},
		Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: o.Status.DesiredNumberScheduled},
	}
}

// stripOwners keeps whose an object is, and whether that is a kind that runs storage.
func stripOwners(all []metav1.OwnerReference) (out []metav1.OwnerReference) {
	for _, o := range all {
		out = append(out, metav1.OwnerReference{
			APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: o.UID, Controller: o.Controller,
		})
	}
	return out
}

// stripPodMeta keeps of a CephOSD's pod what people may write on it, and who did.
func stripPodMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	out := stripMeta(m)
	out.OwnerReferences, out.CreationTimestamp = stripOwners(m.OwnerReferences), m.CreationTimestamp
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
	out := corev1.PodSpec{NodeName: s.NodeName, Tolerations: stripTolerations(s.Tolerations)}
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

// stripTolerations keeps those by which a pod stays where a taint drives others off. Each pod has two that Kubernetes
// adds, for nodes that fail.
func stripTolerations(all []corev1.Toleration) (out []corev1.Toleration) {
	for _, t := range all {
		if (t.Effect == "" || t.Effect == corev1.TaintEffectNoExecute) && !leaving.OfKubernetes(t.Key) {
			out = append(out, t)
		}
	}
	return out
}

func stripPodStatus(s corev1.PodStatus) corev1.PodStatus {
	out := corev1.PodStatus{Phase: s.Phase}
	pod := &corev1.Pod{Status: s}
	if n, runs := kube.Restarts(pod), wish.Runs(pod); n > 0 || runs { // all containers as one
		all := corev1.ContainerStatus{RestartCount: int32(n)} //nolint:gosec // as many as an int32 counts
		if runs {
			all.State.Running = &corev1.ContainerStateRunning{}
		}
		out.ContainerStatuses = []corev1.ContainerStatus{all}
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
