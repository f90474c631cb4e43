// Package monspec is about what a CephMon asks for: whether it makes sense, by itself and in the cluster that it is
// meant for, and what storage a mon has in which zone. It knows Kubernetes' types, but is pure: what is known of the
// cluster comes in, and nothing is asked, read or changed.
package monspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
)

// Set is the mons that a CephMon asks for.
type Set struct {
	Namespace, Name string
	Generation      int64
	Spec            v1alpha1.CephMonSpec
	// Selector are the labels by which the policy finds mon pods; none: Rook's.
	Selector map[string]string
}

// Of is the set of a CephMon.
func Of(c *v1alpha1.CephMon) Set {
	return Set{Namespace: c.Namespace, Name: c.Name, Generation: c.Generation, Spec: c.Spec}
}

// defaultSize is that of a mon's volume when no template has one. Rook has the same.
var defaultSize = resource.MustParse("10Gi")

// Storage is what a new mon keeps its store on.
type Storage struct {
	// Claim: it is a volume claim. Otherwise it is a path of its node.
	Claim bool
	// Class of the claim; nil: the default class of the Kubernetes cluster.
	Class     *string
	Resources corev1.VolumeResourceRequirements
}

// Size is how large the claim is.
func (s Storage) Size() resource.Quantity { return s.Resources.Requests[corev1.ResourceStorage] }

// Storage is that of a new mon in a zone: the zone's own template, or the one for all; without either a path of its
// node. Without zones, zone is "".
func (s Set) Storage(zone string) Storage {
	template := s.Spec.VolumeClaimTemplate
	for _, z := range s.Spec.Zones {
		if z.Name == zone && z.VolumeClaimTemplate != nil {
			template = z.VolumeClaimTemplate
		}
	}
	if template == nil {
		return Storage{}
	}
	resources := *template.Spec.Resources.DeepCopy()
	if _, set := resources.Requests[corev1.ResourceStorage]; !set {
		if resources.Requests == nil {
			resources.Requests = corev1.ResourceList{}
		}
		resources.Requests[corev1.ResourceStorage] = defaultSize
	}
	return Storage{Claim: true, Class: template.Spec.StorageClassName, Resources: resources}
}

// templates are all claim templates with the fields in which they stand.
func (s Set) templates() (fields []string, templates []*v1alpha1.MonVolumeClaimTemplate) {
	add := func(field string, t *v1alpha1.MonVolumeClaimTemplate) {
		if t != nil {
			fields, templates = append(fields, field), append(templates, t)
		}
	}
	add("spec.volumeClaimTemplate", s.Spec.VolumeClaimTemplate)
	for i, z := range s.Spec.Zones {
		add(fmt.Sprintf("spec.zones[%d].volumeClaimTemplate", i), z.VolumeClaimTemplate)
	}
	return fields, templates
}

// templateField is where the template stands that a mon in the zone gets its claim from.
func (s Set) templateField(zone string) string {
	for i, z := range s.Spec.Zones {
		if z.Name == zone && z.VolumeClaimTemplate != nil {
			return fmt.Sprintf("spec.zones[%d].volumeClaimTemplate", i)
		}
	}
	return "spec.volumeClaimTemplate"
}

// Label is the label of nodes with the name of their zone.
func (s Set) Label() string {
	if s.Spec.FailureDomainLabel == "" {
		return corev1.LabelTopologyZone
	}
	return s.Spec.FailureDomainLabel
}

// zoneNames are the zones of the spec, in its order.
func (s Set) zoneNames() []string {
	names := make([]string, len(s.Spec.Zones))
	for i, z := range s.Spec.Zones {
		names[i] = z.Name
	}
	return names
}
