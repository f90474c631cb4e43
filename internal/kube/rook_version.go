package kube

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// RookVersionLabel is the label of a workload by which Rook's operator says which version of Ceph its image has. It has
// run the image to learn that. Rook: pkg/operator/ceph/controller/label.go.
const RookVersionLabel = "ceph-version"

// RookVersion is what the label says, if whoever wrote it last wrote the image, too: "18.2.7-0". "": nobody says
// anything, or the image was changed since by somebody else, who left the label as it was.
func RookVersion(workload *metav1.ObjectMeta, template *corev1.PodSpec) string {
	said, program := workload.Labels[RookVersionLabel], DaemonContainer(template)
	if said == "" || program == nil {
		return ""
	}
	label := fieldpath.MakePathOrDie("metadata", "labels", RookVersionLabel)
	image := fieldpath.MakePathOrDie("spec", "template", "spec", "containers",
		fieldpath.KeyByFields("name", program.Name), "image")
	for _, writer := range workload.ManagedFields {
		var wrote fieldpath.Set
		if writer.FieldsV1 == nil || wrote.FromJSON(writer.FieldsV1.GetRawReader()) != nil {
			continue
		}
		if wrote.Has(label) && wrote.Has(image) {
			return said
		}
	}
	return ""
}
