package podspec

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Knowledge is what Ceph knows of an OSD, and its pod has as labels. The spec knows a device, and not which number Ceph
// gave to it; once that was found out, it is remembered on the pod, and on the pod that comes after it.
type Knowledge struct {
	// ID is the OSD's number; nil: not known.
	ID *int
	// FailureDomains are the names of those that it is in, by CRUSH type: zone → zone-x.
	FailureDomains map[string]string
}

// Known is what a pod's labels tell.
func Known(pod *corev1.Pod) Knowledge {
	k := Knowledge{FailureDomains: map[string]string{}}
	if id, err := strconv.Atoi(pod.Labels[IDLabel]); err == nil && id >= 0 {
		k.ID = &id
	}
	for label, value := range pod.Labels {
		if crushType, ok := strings.CutPrefix(label, FailureDomainLabel); ok && crushType != "" && value != "" {
			k.FailureDomains[crushType] = value
		}
	}
	return k
}

// Labels are those that say it. A bucket whose name cannot be the value of a label is left out, rather than that the
// OSD had no pod.
func (k Knowledge) Labels() map[string]string {
	labels := map[string]string{}
	if k.ID != nil {
		labels[IDLabel] = strconv.Itoa(*k.ID)
	}
	for crushType, name := range k.FailureDomains {
		label := FailureDomainLabel + crushType
		if name != "" && len(validation.IsValidLabelValue(name)) == 0 && len(validation.IsQualifiedName(label)) == 0 {
			labels[label] = name
		}
	}
	return labels
}
