package machines

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file knows how a Machine is held in each API. Several policies may hold one Machine, so each has a mark of its
// own; where the API has one mark for all, the policies that want it are written beside it, and the last one takes it
// away.

// mark is one way to hold a Machine.
type mark struct {
	on          func(o *unstructured.Unstructured) bool
	set, remove func(o *unstructured.Unstructured) error
	// deletions: it holds back deletions, and nothing else.
	deletions bool
	// skips: health checks do not count what carries it.
	skips bool
}

// Hooks that hold the deletion of a Machine of Cluster API.
const (
	preDrainHook     = "pre-drain.delete.hook.machine.cluster.x-k8s.io/"
	preTerminateHook = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/"
)

// hooks are both of Cluster API's hooks. The first waits before the drain, which evicts pods. Cluster API passes it
// over where there is no Machine of the control plane, and for a Machine without node; the second is never passed over,
// and waits before the node is taken away. They come and go together: with the second alone there would be a drain.
func hooks(policy storage.ClusterKey) mark {
	keys := []string{preDrainHook + markName(policy), preTerminateHook + markName(policy)}
	return mark{
		deletions: true,
		on: func(o *unstructured.Unstructured) bool {
			return !slices.ContainsFunc(keys, func(key string) bool { _, ok := o.GetAnnotations()[key]; return !ok })
		},
		set: func(o *unstructured.Unstructured) error {
			for _, key := range keys {
				setEntry(o, "annotations", key, policy.String())
			}
			return nil
		},
		remove: func(o *unstructured.Unstructured) error {
			for _, key := range keys {
				removeEntry(o, "annotations", key)
			}
			return nil
		},
	}
}

// fenceGroup is the label by which a MachineDisruptionBudget selects Machines. The value tells two policies of one name
// in different namespaces apart, of which only one can hold a Machine.
func fenceGroup(policy storage.ClusterKey) mark {
	key := FenceGroup(policy)
	return mark{
		on: func(o *unstructured.Unstructured) bool { return o.GetLabels()[key] == policy.Namespace },
		set: func(o *unstructured.Unstructured) error {
			if other, ok := o.GetLabels()[key]; ok && other != policy.Namespace {
				return fmt.Errorf("label %s of Machine %s is %q, so the MaintenancePolicy %s of that namespace has it: give "+
					"one of the two policies another name", key, o.GetName(), other, policy.Name)
			}
			setEntry(o, "labels", key, policy.Namespace)
			return nil
		},
		remove: func(o *unstructured.Unstructured) error {
			if o.GetLabels()[key] == policy.Namespace {
				removeEntry(o, "labels", key)
			}
			return nil
		},
	}
}

// FenceGroup is the label of the Machines that a policy's MachineDisruptionBudget selects.
func FenceGroup(policy storage.ClusterKey) string { return "fencegroup.rook.io/" + policy.Name }

// wantedBy is followed by the name of a policy that wants a mark which the API has only one of.
const wantedBy = "fencing.lockkeeper.io/"

// shared is a mark that all policies and everybody else have in common. Of a mark that stands there without the note of
// any policy nobody knows whose it is: to everyone it counts as set, and nobody takes it away.
func shared(field, key, value string, policy storage.ClusterKey) mark {
	note := wantedBy + markName(policy)
	entries := func(o *unstructured.Unstructured) map[string]string {
		if field == "labels" {
			return o.GetLabels()
		}
		return o.GetAnnotations()
	}
	others := func(o *unstructured.Unstructured) bool {
		for k := range o.GetAnnotations() {
			if strings.HasPrefix(k, wantedBy) && k != note {
				return true
			}
		}
		return false
	}
	return mark{
		on: func(o *unstructured.Unstructured) bool {
			_, marked := entries(o)[key]
			_, noted := o.GetAnnotations()[note]
			return marked && (noted || !others(o))
		},
		set: func(o *unstructured.Unstructured) error {
			setEntry(o, field, key, value)
			setEntry(o, "annotations", note, policy.String())
			return nil
		},
		remove: func(o *unstructured.Unstructured) error {
			if _, noted := o.GetAnnotations()[note]; !noted {
				return nil
			}
			removeEntry(o, "annotations", note)
			if !others(o) {
				removeEntry(o, field, key)
			}
			return nil
		},
	}
}

// lifecycleHooks are those of OpenShift's machine API, in the spec.
func lifecycleHooks(policy storage.ClusterKey) mark {
	name := markName(policy)
	stages := []string{"preDrain", "preTerminate"}
	ours := func(hook any) bool {
		h, ok := hook.(map[string]any)
		return ok && h["name"] == name
	}
	read := func(o *unstructured.Unstructured, stage string) ([]any, error) {
		list, _, err := unstructured.NestedSlice(o.Object, "spec", "lifecycleHooks", stage)
		return list, err
	}
	return mark{
		deletions: true,
		on: func(o *unstructured.Unstructured) bool {
			for _, stage := range stages {
				if list, err := read(o, stage); err != nil || !slices.ContainsFunc(list, ours) {
					return false
				}
			}
			return true
		},
		set: func(o *unstructured.Unstructured) error {
			for _, stage := range stages {
				list, err := read(o, stage)
				if err != nil {
					return err
				}
				if !slices.ContainsFunc(list, ours) {
					list = append(list, map[string]any{"name": name, "owner": policy.String()})
				}
				if err := unstructured.SetNestedSlice(o.Object, list, "spec", "lifecycleHooks", stage); err != nil {
					return err
				}
			}
			return nil
		},
		remove: func(o *unstructured.Unstructured) error {
			for _, stage := range stages {
				list, err := read(o, stage)
				if err != nil {
					return err
				}
				if list = slices.DeleteFunc(list, ours); len(list) == 0 {
					unstructured.RemoveNestedField(o.Object, "spec", "lifecycleHooks", stage)
				} else if err := unstructured.SetNestedSlice(o.Object, list, "spec", "lifecycleHooks", stage); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// Set holds a Machine. It does nothing when it is held, and nothing when the Machine is another one by now, or gone.
func (h *Holder) Set(ctx context.Context, m fencing.Machine) error {
	return h.change(ctx, m, h.kind.mark.set)
}

// Remove takes a hold of ours away, and leaves those of others.
func (h *Holder) Remove(ctx context.Context, m fencing.Machine) error {
	return h.change(ctx, m, h.kind.mark.remove)
}

// change writes at most one patch, which takes nothing away that somebody else wrote meanwhile.
func (h *Holder) change(
	ctx context.Context, m fencing.Machine, edit func(*unstructured.Unstructured) error,
) error {
	k, err := h.served(h.kind.machine, h.kind.versions)
	if err != nil {
		return err
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(k)
		if err := h.client.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: m.Name}, o); err != nil {
			return client.IgnoreNotFound(err)
		}
		if string(o.GetUID()) != m.UID {
			return nil
		}
		before := o.DeepCopy()
		if err := edit(o); err != nil {
			return err
		}
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if data, err := patch.Data(o); err != nil || isEmpty(data) {
			return err
		}
		return client.IgnoreNotFound(h.client.Patch(ctx, o, patch, client.FieldOwner(kube.FieldOwner)))
	})
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("%s %s: %w", k.Kind, m.Name, err)
	}
	return err
}

// isEmpty tells whether a patch says nothing but which version it is about.
func isEmpty(patch []byte) bool {
	var p map[string]any
	if err := json.Unmarshal(patch, &p); err != nil {
		return false
	}
	metadata, _ := p["metadata"].(map[string]any)
	delete(metadata, "resourceVersion")
	return len(metadata) == 0 && (len(p) == 0 || len(p) == 1 && p["metadata"] != nil)
}

func setEntry(o *unstructured.Unstructured, field, key, value string) {
	entries := o.GetAnnotations()
	if field == "labels" {
		entries = o.GetLabels()
	}
	if entries == nil {
		entries = map[string]string{}
	}
	entries[key] = value
	if field == "labels" {
		o.SetLabels(entries)
	} else {
		o.SetAnnotations(entries)
	}
}

func removeEntry(o *unstructured.Unstructured, field, key string) {
	if field == "labels" {
		labels := o.GetLabels()
		delete(labels, key)
		o.SetLabels(labels)
		return
	}
	annotations := o.GetAnnotations()
	delete(annotations, key)
	o.SetAnnotations(annotations)
}

// longestName is how long the part of a key after its slash may be.
const longestName = 63

// markName is a policy's name in a key: "lockkeeper.rook-ceph.ceph", or, when that is too long, a beginning of it and a
// hash. A namespace has no dots, so no two policies have the same.
func markName(policy storage.ClusterKey) string {
	name := "lockkeeper." + policy.Namespace + "." + policy.Name
	if len(name) <= longestName {
		return name
	}
	sum := sha256.Sum256([]byte(policy.String()))
	suffix := "-" + hex.EncodeToString(sum[:6])
	return strings.TrimRight(name[:longestName-len(suffix)], "-._") + suffix
}
