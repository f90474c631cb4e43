package podspec

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/windows"
)

// refusals is what makes no sense in all but the storage. The CRD refuses most of it as well; an object may be older
// than the CRD. Which update domains there are only the storage cluster knows.
func (s Set) refusals() (refused []*input.Error) {
	refuse := func(field, value, allowed string) { refused = append(refused, input.Wrong(field, value, allowed)) }
	spec := &s.Spec
	if len(s.Name) > longestOwner {
		refuse("metadata.name", s.Name,
			fmt.Sprintf("must have at most %d characters: pods carry it in the value of a label, as %s", longestOwner,
				Owner("<name>")))
	}
	if spec.MaxParallel < 0 {
		refuse("spec.maxParallel", fmt.Sprint(spec.MaxParallel), "must be at least 1, or 0 for as many as Ceph lets go")
	}
	if spec.Policy != "" && len(validation.IsDNS1123Subdomain(spec.Policy)) > 0 {
		refuse("spec.policy", spec.Policy, "must be the name of a MaintenancePolicy")
	}
	if p := spec.DeletionPolicy; p != "" && p != v1alpha1.RetainOSDs && p != v1alpha1.DeleteOSDs {
		refuse("spec.deletionPolicy", string(p), fmt.Sprintf("must be %s or %s", v1alpha1.RetainOSDs, v1alpha1.DeleteOSDs))
	}
	var soak *metav1.Duration
	if spec.Canary != nil {
		soak = spec.Canary.Soak
	}
	for _, d := range []struct {
		field       string
		value       *metav1.Duration
		least, most time.Duration
		allowed     string
	}{
		{"spec.pauseBetween", spec.PauseBetween, 0, 168 * time.Hour, "must be between 0s and 168h, such as 5m"},
		{"spec.canary.soak", soak, 0, 168 * time.Hour, "must be between 0s and 168h, such as 30m"},
		{
			"spec.progressDeadline", spec.ProgressDeadline, 10 * time.Second, 24 * time.Hour,
			"must be between 10s and 24h, such as 10m",
		},
	} {
		if d.value != nil && (d.value.Duration < d.least || d.value.Duration > d.most) {
			refuse(d.field, d.value.Duration.String(), d.allowed)
		}
	}
	if _, err := s.Windows(); err != nil {
		refused = append(refused, err)
	}
	return append(refused, templateRefusals(&spec.PodTemplate)...)
}

// Windows are the times in which a batch may begin, or the first that makes no sense.
func (s Set) Windows() ([]windows.Window, *input.Error) {
	return Windows("spec.windows", s.Spec.Windows)
}

// Windows reads windows, or says what is wrong with the first that makes no sense. field is the path of their list.
func Windows(field string, spec []v1alpha1.Window) ([]windows.Window, *input.Error) {
	out := make([]windows.Window, 0, len(spec))
	for i, w := range spec {
		parsed, err := windows.Parse(fmt.Sprintf("%s[%d]", field, i), w.Schedule, w.Duration.Duration, w.TimeZone)
		if err != nil {
			return nil, err
		}
		out = append(out, parsed)
	}
	return out, nil
}

// templateRefusals is what a template must not have; whether it is a pod at all only the API server can say.
func templateRefusals(t *v1alpha1.PodTemplate) (refused []*input.Error) {
	refuse := func(field, value, allowed string) {
		refused = append(refused, input.Wrong("spec.podTemplate."+field, value, allowed))
	}
	if t.APIVersion != "" && t.APIVersion != "v1" {
		refuse("apiVersion", t.APIVersion, "must be v1, or left out")
	}
	if t.Kind != "" && t.Kind != "Pod" {
		refuse("kind", t.Kind, "must be Pod, or left out")
	}
	if len(t.Spec.Containers) == 0 {
		refuse("spec.containers", "", "must have at least one container, the OSD's")
	}
	if p := t.Spec.RestartPolicy; p != "" && p != corev1.RestartPolicyAlways {
		refuse("spec.restartPolicy", string(p), "must be Always: nobody else starts an OSD again that crashed")
	}
	if t.Spec.NodeName != "" {
		refuse("spec.nodeName", t.Spec.NodeName, "must be left out: spec.storage says on which hosts the pods run")
	}
	if id, ok := t.Labels[IDLabel]; ok {
		refuse("metadata.labels["+IDLabel+"]", id,
			"must be left out: every OSD has a number of its own, and lockkeeper writes it")
	}
	return refused
}
