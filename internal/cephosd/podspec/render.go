package podspec

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
)

// Render is the pod of an OSD: the template, with what makes it this OSD's. Labels and annotations of ours win over
// those of the template, everything else in it stays. The pod is made unready.
func (s Set) Render(o OSD, k Knowledge) *corev1.Pod {
	template := s.Spec.PodTemplate.DeepCopy()
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: PodName(o), Namespace: s.Namespace,
			Labels:          merged(theirs(template.Labels), k.Labels(), map[string]string{OwnerLabel: Owner(s.Name)}),
			Annotations:     merged(theirs(template.Annotations), s.annotations(o)),
			Finalizers:      template.Finalizers,
			OwnerReferences: s.OwnerReferences(),
		},
		Spec: template.Spec,
	}
	bind(&pod.Spec, o.Host)
	for i := range pod.Spec.InitContainers {
		pod.Spec.InitContainers[i].Env = withDevices(pod.Spec.InitContainers[i].Env)
	}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Env = withDevices(pod.Spec.Containers[i].Env)
	}
	return pod
}

// theirs leaves out what only we may write: a template's own db, say, would be that of every OSD which has none.
func theirs(m map[string]string) map[string]string {
	maps.DeleteFunc(m, func(key, _ string) bool { return strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") })
	return m
}

func merged(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}

// annotations leave out DB and WAL that the OSD does not have.
func (s Set) annotations(o OSD) map[string]string {
	out := map[string]string{
		HashAnnotation: s.Hash, HostAnnotation: o.Host, DataAnnotation: o.Data, StateAnnotation: string(Unready),
	}
	if o.DB != "" {
		out[DBAnnotation] = o.DB
	}
	if o.WAL != "" {
		out[WALAnnotation] = o.WAL
	}
	return out
}

// OwnerReferences are those that a pod of this CephOSD has. With one, Kubernetes deletes the pod together with it;
// without, the pod stays. The original operator always wrote one, so that an adopted pod may have to lose it.
func (s Set) OwnerReferences() []metav1.OwnerReference {
	if s.Spec.DeletionPolicy != v1alpha1.DeleteOSDs {
		return nil
	}
	return []metav1.OwnerReference{*metav1.NewControllerRef(s.CephOSD, v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))}
}

// deviceVariables tell the containers the OSD's devices. They refer to annotations, as the original's do: one that is
// not there is an empty variable.
var deviceVariables = []deviceVariable{
	{"OSD_DEVICE", DataAnnotation}, {"OSD_DB_DEVICE", DBAnnotation}, {"OSD_WAL_DEVICE", WALAnnotation},
}

type deviceVariable struct{ name, annotation string }

// withDevices puts the variables first, so that others can refer to them: a variable sees only those before it. Others
// of the same names are left out; the last of two would win.
func withDevices(env []corev1.EnvVar) []corev1.EnvVar {
	out := make([]corev1.EnvVar, 0, len(env)+len(deviceVariables))
	for _, v := range deviceVariables {
		out = append(out, corev1.EnvVar{Name: v.name, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + v.annotation + "']"},
		}})
	}
	return append(out, slices.DeleteFunc(env, func(v corev1.EnvVar) bool { return isDeviceVariable(v.Name) })...)
}

var envField = regexp.MustCompile(`^spec\.(initContainers|containers)\[(\d+)\]\.env\[(\d+)\](.*)$`)

// TemplateField is where in the template a field of a rendered pod comes from: variables have moved there. One that is
// ours is the container's.
func (s Set) TemplateField(field string) string {
	m := envField.FindStringSubmatch(field)
	if m == nil {
		return field
	}
	containers := s.Spec.PodTemplate.Spec.Containers
	if m[1] == "initContainers" {
		containers = s.Spec.PodTemplate.Spec.InitContainers
	}
	container, _ := strconv.Atoi(m[2])
	at, _ := strconv.Atoi(m[3])
	if container >= len(containers) {
		return field
	}
	next := len(deviceVariables)
	for i, v := range containers[container].Env {
		switch {
		case isDeviceVariable(v.Name):
		case next == at:
			return fmt.Sprintf("spec.%s[%d].env[%d]%s", m[1], container, i, m[4])
		default:
			next++
		}
	}
	return fmt.Sprintf("spec.%s[%d]", m[1], container)
}

func isDeviceVariable(name string) bool {
	return slices.ContainsFunc(deviceVariables, func(v deviceVariable) bool { return v.name == name })
}

// bind lets the pod run on its host alone. Terms of a node selector are alternatives, so that every one of them gets
// the host. One without any requirement matches no node, and would match the host if it got one: it stays as it is.
func bind(spec *corev1.PodSpec, host string) {
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	node := spec.Affinity.NodeAffinity
	onHost := func() corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{
			Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn,
			Values: []string{host},
		}
	}
	if required := node.RequiredDuringSchedulingIgnoredDuringExecution; required == nil ||
		len(required.NodeSelectorTerms) == 0 {
		node.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{onHost()}}},
		}
		return
	}
	terms := node.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		if len(terms[i].MatchExpressions)+len(terms[i].MatchFields) > 0 {
			terms[i].MatchExpressions = append(terms[i].MatchExpressions, onHost())
		}
	}
}
