// Package machines is lockkeeper's hand in the APIs that fence nodes: it finds Machines and their nodes, and the health
// checks that select them, and sets and takes away the marks by which a Machine is held. It decides nothing.
//
// The objects are read without types of their own: the APIs may be installed later than lockkeeper, in any of their
// versions, or not at all.
package machines

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// ErrNotServed says that the API server does not have the API that a policy names. It may be installed later.
var ErrNotServed = errors.New("the API server does not serve it")

// Holder holds the Machines of one API for one policy.
type Holder struct {
	client    client.Client
	policy    storage.ClusterKey
	namespace string
	kind      kind
	// pinned are the nodes of OSDs that can run nowhere else, since their disks are there; nil: none are looked for.
	pinned func(context.Context) (map[string]bool, error)
}

// kind is what differs between the APIs.
type kind struct {
	api v1alpha1.FencingAPI
	// group and versions of the Machines, the preferred one first; Nodes have "" and v1.
	machine  schema.GroupKind
	versions []string
	check    schema.GroupKind
	// versionsOfChecks; nil: as the Machines'.
	versionsOfChecks []string
	mark             mark
}

const (
	capiGroup      = "cluster.x-k8s.io"
	openShiftGroup = "machine.openshift.io"
	medik8sGroup   = "remediation.medik8s.io"
)

// For makes the holder of a policy. The error says which field of the spec makes no sense.
func For(c client.Client, policy storage.ClusterKey, spec v1alpha1.FencingSpec) (*Holder, error) {
	h := &Holder{client: c, policy: policy, namespace: spec.Namespace}
	switch spec.API {
	case v1alpha1.FencingClusterAPI:
		h.kind = kind{
			machine: schema.GroupKind{Group: capiGroup, Kind: "Machine"}, versions: []string{"v1beta2", "v1beta1"},
			check: schema.GroupKind{Group: capiGroup, Kind: "MachineHealthCheck"}, mark: hooks(policy),
		}
		if spec.Hold == v1alpha1.FencingHoldSkipRemediation {
			h.kind.mark = shared("annotations", "cluster.x-k8s.io/skip-remediation", "", policy)
			h.kind.mark.skips = true
		}
	case v1alpha1.FencingOpenShift:
		h.kind = kind{
			machine: schema.GroupKind{Group: openShiftGroup, Kind: "Machine"}, versions: []string{"v1beta1"},
			check: schema.GroupKind{Group: openShiftGroup, Kind: "MachineHealthCheck"}, mark: lifecycleHooks(policy),
		}
	case v1alpha1.FencingMachineDisruptionBudget:
		h.kind = kind{
			machine: schema.GroupKind{Group: openShiftGroup, Kind: "Machine"}, versions: []string{"v1beta1"},
			check: schema.GroupKind{Group: openShiftGroup, Kind: "MachineHealthCheck"}, mark: fenceGroup(policy),
		}
	case v1alpha1.FencingNodeHealthCheck:
		h.namespace = ""
		h.kind = kind{
			machine: schema.GroupKind{Kind: "Node"}, versions: []string{"v1"},
			check:            schema.GroupKind{Group: medik8sGroup, Kind: "NodeHealthCheck"},
			versionsOfChecks: []string{"v1alpha1"},
			mark:             shared("labels", medik8sGroup+"/exclude-from-remediation", "true", policy),
		}
	default:
		return nil, fmt.Errorf("spec.fencing.api %q: allowed are %s, %s, %s and %s", spec.API,
			v1alpha1.FencingMachineDisruptionBudget, v1alpha1.FencingClusterAPI, v1alpha1.FencingOpenShift,
			v1alpha1.FencingNodeHealthCheck)
	}
	h.kind.api = spec.API
	return h, nil
}

// served finds a version that the API server has. The error wraps ErrNotServed when it has none. One is asked for at a
// time: of several the mapper finds none as long as one of them is not served.
func (h *Holder) served(k schema.GroupKind, versions []string) (schema.GroupVersionKind, error) {
	for _, version := range versions {
		mapping, err := h.client.RESTMapper().RESTMapping(k, version)
		switch {
		case meta.IsNoMatchError(err):
			continue
		case err != nil:
			return schema.GroupVersionKind{}, err
		default:
			return mapping.GroupVersionKind, nil
		}
	}
	return schema.GroupVersionKind{}, fmt.Errorf("spec.fencing.api %s: %s: %w", h.kind.api, k, ErrNotServed)
}

func (h *Holder) list(ctx context.Context, k schema.GroupVersionKind) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(k.GroupVersion().WithKind(k.Kind + "List"))
	var options []client.ListOption
	if h.namespace != "" {
		options = append(options, client.InNamespace(h.namespace))
	}
	switch err := h.client.List(ctx, list, options...); {
	case apierrors.IsNotFound(err): // as a list never is while there is the kind
		return nil, fmt.Errorf("spec.fencing.api %s: %s is gone, version %s at least: %w", h.kind.api, k.GroupKind(),
			k.Version, ErrNotServed)
	case err != nil:
		return nil, fmt.Errorf("list of %s: %w", k.GroupKind(), err)
	}
	return list.Items, nil
}

// Machines lists everything that can be held. One list, whatever the number of Machines.
func (h *Holder) Machines(ctx context.Context) ([]fencing.Machine, error) {
	k, err := h.served(h.kind.machine, h.kind.versions)
	if err != nil {
		return nil, err
	}
	items, err := h.list(ctx, k)
	if err != nil {
		return nil, err
	}
	machines := make([]fencing.Machine, 0, len(items))
	for i := range items {
		machines = append(machines, h.describe(&items[i]))
	}
	return machines, nil
}

func (h *Holder) describe(o *unstructured.Unstructured) fencing.Machine {
	m := fencing.Machine{
		Name: o.GetName(), UID: string(o.GetUID()), Held: h.kind.mark.on(o), Deleting: o.GetDeletionTimestamp() != nil,
		Labels: o.GetLabels(),
	}
	if at := o.GetDeletionTimestamp(); at != nil {
		m.DeletingSince = at.Time
	}
	if h.kind.machine.Kind == "Node" {
		m.Node = o.GetName()
	} else {
		m.Node, _, _ = unstructured.NestedString(o.Object, "status", "nodeRef", "name")
	}
	return m
}
