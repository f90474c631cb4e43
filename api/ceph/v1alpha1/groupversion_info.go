// Package v1alpha1 holds the API of CephOSD: ceph.elemental.net/v1alpha1, the group and version of the operator whose
// manifests it takes.
// +kubebuilder:object:generate=true
// +groupName=ceph.elemental.net
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of all types in this package.
var GroupVersion = schema.GroupVersion{Group: "ceph.elemental.net", Version: "v1alpha1"}

// Kind is the kind of CephOSD, as owner labels and owner references name it.
const Kind = "CephOSD"

// AddToScheme registers the types of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &CephOSD{}, &CephOSDList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
