package kube

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// RookVersionLabel is the label of a workload by which Rook's operator says which version of Ceph its image has. It has
// run the image to learn that. Rook: pkg/operator/ceph/controller/label.go.
const RookVersionLabel = "ceph-version"

// rookManager is Rook's operator, as the API server notes who wrote a field. It writes the label and the image at once;
// of others who own both nobody knows that.
const rookManager = "rook"

// RookVersion is what the label says, if Rook was the last to write both it and the image: "18.2.7-0". "": nobody says
// anything, or somebody else has written one of them since.
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
		if writer.Manager != rookManager || writer.FieldsV1 == nil || wrote.FromJSON(writer.FieldsV1.GetRawReader()) != nil {
			continue
		}
		if wrote.Has(label) && wrote.Has(image) {
			return said
		}
	}
	return ""
}
