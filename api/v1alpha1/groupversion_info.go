// Package v1alpha1 holds the API of lockkeeper: lockkeeper.io/v1alpha1.
// +kubebuilder:object:generate=true
// +groupName=lockkeeper.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of all types in this package.
var GroupVersion = schema.GroupVersion{Group: "lockkeeper.io", Version: "v1alpha1"}

// AddToScheme registers the types of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &MaintenancePolicy{}, &MaintenancePolicyList{}, &CephMon{}, &CephMonList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
