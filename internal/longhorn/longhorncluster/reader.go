// Package longhorncluster reads a Longhorn installation from the API server, in the words of package longhorn. It
// decides nothing.
//
// The objects are read without types of their own: Longhorn may be installed later than lockkeeper, or not at all, and
// its types would bring its dependencies.
package longhorncluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/internal/longhorn"
)

// ErrNotInstalled says that the API server does not serve Longhorn's kinds. They may be installed later.
var ErrNotInstalled = errors.New("Longhorn is not installed: the API server does not serve " + group.String())

var group = schema.GroupVersion{Group: "longhorn.io", Version: "v1beta2"}

// Reader reads one installation.
type Reader struct {
	client    client.Reader
	namespace string
}

// New reads the installation in a namespace, usually longhorn-system.
func New(c client.Reader, namespace string) *Reader { return &Reader{client: c, namespace: namespace} }

// Before is what the decision before left: see longhorn.World.
type Before struct {
	Kept, Going    []string
	TaintExpiry    time.Duration
	EvictOnRemoval bool
}

// World reads everything that a decision needs. The error is ErrNotInstalled where there is no Longhorn; an object that
// is not as it should be is a Fault in the World.
func (r *Reader) World(ctx context.Context, now time.Time, before Before) (longhorn.World, error) {
	objects, err := r.Objects(ctx)
	if err != nil {
		return longhorn.World{}, err
	}
	objects.Now, objects.Before = now, before
	return objects.World(), nil
}

// Objects reads the objects of the installation. Pods are read first: what is proved by what comes later is proved of
// them. The others depend on nothing: whatever changes between two of them may as well change after the last.
func (r *Reader) Objects(ctx context.Context) (objects Objects, err error) {
	var (
		pods  corev1.PodList
		nodes corev1.NodeList
	)
	if err := r.client.List(ctx, &pods, client.InNamespace(r.namespace), client.HasLabels{componentLabel}); err != nil {
		return objects, fmt.Errorf("pods in %s: %w", r.namespace, err)
	}
	together, all := errgroup.WithContext(ctx)
	together.Go(func() error {
		if err := r.client.List(all, &nodes); err != nil {
			return fmt.Errorf("nodes: %w", err)
		}
		return nil
	})
	for _, list := range []struct {
		kind string
		into *[]unstructured.Unstructured
	}{
		{"Setting", &objects.Settings},
		{"Replica", &objects.Replicas},
		{"Volume", &objects.Volumes},
		{"InstanceManager", &objects.Managers},
	} {
		together.Go(func() (err error) {
			*list.into, err = r.list(all, list.kind)
			return err
		})
	}
	if err := together.Wait(); err != nil {
		return objects, err
	}
	objects.Pods, objects.Nodes = pods.Items, nodes.Items
	return objects, nil
}

func (r *Reader) list(ctx context.Context, kind string) ([]unstructured.Unstructured, error) {
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(group.WithKind(kind + "List"))
	err := r.client.List(ctx, &list, client.InNamespace(r.namespace))
	switch {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return nil, ErrNotInstalled
	case err != nil:
		return nil, fmt.Errorf("Longhorn's objects of kind %s in %s: %w", kind, r.namespace, err)
	}
	return list.Items, nil
}
