package starter

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// ownedFields is the little of a field manager's fields from which one can tell whether lockkeeper made a pod, and
// whether it was lockkeeper that wrote what is said on it.
type ownedFields struct {
	Metadata struct {
		Annotations map[string]json.RawMessage `json:"f:annotations,omitempty"`
		Labels      map[string]json.RawMessage `json:"f:labels,omitempty"`
	} `json:"f:metadata,omitzero"`
	Spec json.RawMessage `json:"f:spec,omitempty"`
}

// nothing stands for the fields below one that matters.
var nothing = json.RawMessage("{}")

// readFields reads an entry. What cannot be read owns nothing, so that a change counts rather than is overlooked.
func readFields(f metav1.ManagedFieldsEntry) ownedFields {
	var all, out ownedFields
	if f.Subresource != "" || f.FieldsV1 == nil || json.Unmarshal(f.FieldsV1.GetRawBytes(), &all) != nil {
		return out
	}
	if len(all.Spec) > 0 {
		out.Spec = nothing
	}
	for _, annotation := range []string{podspec.StateAnnotation, podspec.HashAnnotation} {
		if _, owns := all.Metadata.Annotations["f:"+annotation]; owns {
			if out.Metadata.Annotations == nil {
				out.Metadata.Annotations = map[string]json.RawMessage{}
			}
			out.Metadata.Annotations["f:"+annotation] = nothing
		}
	}
	if _, owns := all.Metadata.Labels["f:"+podspec.IDLabel]; owns {
		out.Metadata.Labels = map[string]json.RawMessage{"f:" + podspec.IDLabel: nothing}
	}
	return out
}

func (f ownedFields) none() bool {
	return len(f.Spec)+len(f.Metadata.Annotations)+len(f.Metadata.Labels) == 0
}

// stripFields keeps of managed fields what readFields reads.
func stripFields(fields []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var out []metav1.ManagedFieldsEntry
	for _, f := range fields {
		owned := readFields(f)
		if owned.none() {
			continue
		}
		raw, err := json.Marshal(owned)
		if err != nil {
			continue // cannot happen with this type; then it owns nothing
		}
		out = append(out, metav1.ManagedFieldsEntry{Manager: f.Manager, FieldsV1: metav1.NewFieldsV1(string(raw))})
	}
	return out
}

// ours are the fields of a pod that lockkeeper wrote.
func ours(pod *corev1.Pod) (fields ownedFields) {
	for _, f := range pod.ManagedFields {
		if f.Manager != kube.FieldOwner {
			continue
		}
		owned := readFields(f)
		if owned.Spec != nil {
			fields.Spec = owned.Spec
		}
		if fields.Metadata.Annotations == nil {
			fields.Metadata.Annotations = map[string]json.RawMessage{}
		}
		// written by an update and by a patch, they are in two entries
		maps.Copy(fields.Metadata.Annotations, owned.Metadata.Annotations)
		if owned.Metadata.Labels != nil {
			fields.Metadata.Labels = owned.Metadata.Labels
		}
	}
	return fields
}
