package podspec

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
)

// Set is a CephOSD: a set of OSDs, and how to make a pod for each. It is not changed by anything in this package.
type Set struct {
	*v1alpha1.CephOSD
	// Hash is that of the template as people wrote it.
	Hash string
}

// Read reads a CephOSD as it comes from the API server, unstructured; TemplateHash says why.
func Read(object map[string]any) (Set, error) {
	cr := &v1alpha1.CephOSD{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, cr); err != nil {
		return Set{}, fmt.Errorf("read CephOSD: %w", err)
	}
	spec, _ := object["spec"].(map[string]any)
	hash, err := TemplateHash(spec["podTemplate"])
	if err != nil {
		return Set{}, fmt.Errorf("CephOSD %s/%s: %w", cr.Namespace, cr.Name, err)
	}
	return Set{CephOSD: cr, Hash: hash}, nil
}

// oneByOne is the update domain by default.
const oneByOne v1alpha1.UpdateDomain = "OSD"

// Domain is the update domain, with its default.
func (s Set) Domain() v1alpha1.UpdateDomain { return cmp.Or(s.Spec.UpdateDomain, oneByOne) }
