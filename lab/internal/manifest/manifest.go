// Package manifest reads and applies the manifests that a project ships.
package manifest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// FieldOwner is as whom objects are applied.
const FieldOwner = "lab"

var crds = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// Decode reads all objects of YAML documents, CRDs first.
func Decode(r io.Reader) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(r, 4096); ; {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
	SortKindsFirst(objects)
	return objects, nil
}

// ReadFolder reads all objects of the YAML files of a folder, CRDs first.
func ReadFolder(dir string) ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		objects, err := Decode(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, objects...)
	}
	SortKindsFirst(all)
	return all, nil
}

// SortKindsFirst puts CRDs before everything else, which may be of their kinds.
func SortKindsFirst(objects []*unstructured.Unstructured) {
	rank := func(o *unstructured.Unstructured) int {
		if o.GetKind() == "CustomResourceDefinition" {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
}

// Applier makes objects what they should be.
type Applier struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

// NewApplier asks the API server for the resources of its kinds when it needs them.
func NewApplier(config *rest.Config, client dynamic.Interface) (*Applier, error) {
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Applier{client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d))}, nil
}

// Apply creates each object, or makes it what it should be, in this order.
func (a *Applier) Apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		kind := o.GroupVersionKind()
		m, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
		var r dynamic.ResourceInterface = a.client.Resource(m.Resource)
		if m.Scope.Name() == meta.RESTScopeNameNamespace {
			r = a.client.Resource(m.Resource).Namespace(o.GetNamespace())
		}
		options := metav1.ApplyOptions{FieldManager: FieldOwner, Force: true}
		if _, err := r.Apply(ctx, o.GetName(), o, options); err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// AwaitKinds waits until the API server serves the kinds of all CRDs: a controller gives up when one that it watches is
// missing.
func AwaitKinds(ctx context.Context, client dynamic.Interface) error {
	return Poll(ctx, func() (bool, error) {
		list, err := client.Resource(crds).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, crd := range list.Items {
			if !HasCondition(&crd, "Established") {
				return false, nil
			}
		}
		return true, nil
	})
}

// HasCondition tells whether a condition of an object is True.
func HasCondition(o *unstructured.Unstructured, kind string) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["type"] == kind && condition["status"] == "True" {
			return true
		}
	}
	return false
}

// Poll asks until the answer is yes. An error together with yes is final; one without is worth another try.
func Poll(ctx context.Context, ask func() (bool, error)) error {
	var last error
	for {
		done, err := ask()
		if done {
			return err
		}
		if err != nil {
			last = err
		}
		select {
		case <-time.After(pollPeriod):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), last)
		}
	}
}

const pollPeriod = 100 * time.Millisecond
