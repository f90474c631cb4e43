package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file has Longhorn move replicas away from nodes that are leaving, by two fields of its own Node objects. What is
// ours of them an annotation says, in the same write.

// Relocates is the annotation of a node of Longhorn's: for which policy, and which of its fields lockkeeper has
// changed: "NAMESPACE/NAME scheduling eviction".
const Relocates = "lockkeeper.io/relocates-replicas"

// What lockkeeper changes: allowScheduling to false, and evictionRequested to true. Longhorn refuses the latter without
// the former.
const (
	ofScheduling = "scheduling"
	ofEviction   = "eviction"
)

// Longhorn's paths of these fields.
const (
	schedulingPath = "/spec/allowScheduling"
	evictionPath   = "/spec/evictionRequested"
)

var longhornNodes = schema.GroupVersionKind{Group: "longhorn.io", Version: "v1beta2", Kind: "NodeList"}

// Relocate implements activities.Budgets.
func (c *Cluster) Relocate(
	ctx context.Context, in activities.RelocateInput,
) (out activities.RelocateResult, err error) {
	p, err := c.policyAs(ctx, in.Cluster, in.Policy)
	if err != nil || KindOf(p) != storage.Longhorn {
		return out, err
	}
	out.Changed, err = c.relocate(ctx, in.Cluster, in.Nodes)
	if apierrors.IsForbidden(err) {
		out.Refused = fmt.Sprintf("replicas cannot be moved away from nodes that are leaving: it takes the rights of "+
			"deploy/storage-namespace-longhorn-evict.yaml: %v", err)
		return out, nil
	}
	return out, err
}

// relocate makes Longhorn's nodes what is wanted: first all that are to get no more replicas, and then those that lose
// what they have.
func (c *Cluster) relocate(ctx context.Context, key storage.ClusterKey, want []storage.Relocation) (bool, error) {
	changed, empties := false, slices.ContainsFunc(want, func(r storage.Relocation) bool { return r.Away })
	for _, evicts := range []bool{false, true} {
		if evicts && !empties {
			break
		}
		nodes, err := c.longhornNodes(ctx, key.Namespace)
		if len(want) == 0 && apierrors.IsForbidden(err) { // then nothing was ever changed
			return false, nil
		}
		if err != nil {
			return changed, err
		}
		for i := range nodes {
			patch := relocated(&nodes[i], key.String(), want, evicts)
			if len(patch) == 0 {
				continue
			}
			if err := c.patchLonghornNode(ctx, &nodes[i], patch); err != nil {
				return changed, err
			}
			changed = true
		}
	}
	return changed, nil
}

func (c *Cluster) longhornNodes(ctx context.Context, namespace string) ([]unstructured.Unstructured, error) {
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(longhornNodes)
	err := c.api.List(ctx, &list, client.InNamespace(namespace))
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) { // there is no Longhorn any more
		return nil, nil
	}
	return list.Items, err
}

// relocated is what has to change on a node of Longhorn's. What somebody else has set stays as it is, and is not ours.
// evicts: by now no node that is leaving gets more replicas.
func relocated(
	n *unstructured.Unstructured, policy string, want []storage.Relocation, evicts bool,
) (patch []operation) {
	of, mine, _ := strings.Cut(n.GetAnnotations()[Relocates], " ")
	if of != "" && of != policy {
		return nil
	}
	ours := strings.Fields(mine)
	i := slices.IndexFunc(want, func(r storage.Relocation) bool { return r.Node == n.GetName() })
	fields := []struct {
		path, field, name string
		to, wanted        bool // to: what it is while that is wanted
	}{
		{schedulingPath, "allowScheduling", ofScheduling, false, i >= 0},
		{evictionPath, "evictionRequested", ofEviction, true, i >= 0 && want[i].Away},
	}
	var kept []string
	for _, f := range fields {
		is, _, _ := unstructured.NestedBool(n.Object, "spec", f.field)
		mine := slices.Contains(ours, f.name)
		switch {
		case f.wanted && is == f.to:
		case f.wanted && (f.name == ofScheduling || evicts):
			patch, mine = append(patch, operation{"add", f.path, f.to}), true
		case !f.wanted && mine:
			if mine = false; is == f.to {
				patch = append(patch, operation{"add", f.path, !f.to})
			}
		}
		if mine {
			kept = append(kept, f.name)
		}
	}
	switch {
	case slices.Equal(kept, ours):
		return patch
	case len(kept) == 0:
		return append(patch, operation{"remove", annotationPath(Relocates), nil})
	case len(n.GetAnnotations()) == 0:
		patch = append(patch, operation{"add", "/metadata/annotations", map[string]string{}})
	}
	return append(patch, annotate(Relocates, policy+" "+strings.Join(kept, " ")))
}

// patchLonghornNode changes a node that is exactly the one that was seen.
func (c *Cluster) patchLonghornNode(ctx context.Context, n *unstructured.Unstructured, change []operation) error {
	seen := operation{"test", "/metadata/resourceVersion", n.GetResourceVersion()}
	patch, err := json.Marshal(append([]operation{seen}, change...))
	if err != nil {
		return err
	}
	err = c.api.Patch(ctx, n, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(FieldOwner))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("node %s of Longhorn's: %w", n.GetName(), err)
	}
	return nil
}
