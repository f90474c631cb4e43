package machines

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Fencer is what the activities ask of the APIs that fence nodes.
type Fencer struct{ Client client.Client }

var _ activities.Machines = Fencer{}

func (f Fencer) holder(key storage.ClusterKey, spec storage.Fencing) (*Holder, error) {
	h, err := For(f.Client, key, v1alpha1.FencingSpec{
		API: v1alpha1.FencingAPI(spec.API), Namespace: spec.Namespace, Hold: v1alpha1.FencingHold(spec.Hold),
	})
	if err != nil {
		return nil, err
	}
	h.pinned = func(ctx context.Context) (map[string]bool, error) { return f.pinned(ctx, key) }
	return h, nil
}

// Machines implements activities.Machines.
func (f Fencer) Machines(
	ctx context.Context, key storage.ClusterKey, spec storage.Fencing,
) ([]fencing.Machine, error) {
	h, err := f.holder(key, spec)
	if err != nil {
		return nil, err
	}
	return h.Machines(ctx)
}

// Odd implements activities.Machines. What cannot be looked at is odd, too.
func (f Fencer) Odd(
	ctx context.Context, key storage.ClusterKey, spec storage.Fencing, all []fencing.Machine,
) func(nodes []string) []string {
	h, err := f.holder(key, spec)
	var r rules
	if err == nil {
		r, err = h.rules(ctx)
	}
	return func(nodes []string) (odd []string) {
		if err != nil {
			return []string{"whether a node would ever be fenced is not known: " + err.Error()}
		}
		for _, p := range h.odd(r, all, nodes) {
			odd = append(odd, p.Message)
		}
		return odd
	}
}

// Budget implements activities.Machines.
func (f Fencer) Budget(
	ctx context.Context, key storage.ClusterKey, spec storage.Fencing,
) (fencing.MachineBudget, error) {
	h, err := f.holder(key, spec)
	if err != nil {
		return fencing.MachineBudget{}, err
	}
	return h.Budget(ctx)
}

// Hold implements activities.Machines.
func (f Fencer) Hold(
	ctx context.Context, key storage.ClusterKey, spec storage.Fencing, m fencing.Machine, on bool,
) error {
	h, err := f.holder(key, spec)
	if err != nil {
		return err
	}
	if on {
		return h.Set(ctx, m)
	}
	return h.Remove(ctx, m)
}

// SetMax implements activities.Machines.
func (f Fencer) SetMax(ctx context.Context, key storage.ClusterKey, spec storage.Fencing, most *int) error {
	h, err := f.holder(key, spec)
	if err != nil {
		return err
	}
	if most == nil {
		return h.RemoveBudget(ctx)
	}
	return h.SetBudget(ctx, *most)
}

// Patient implements activities.Machines.
func (f Fencer) Patient(
	ctx context.Context, key storage.ClusterKey, spec storage.Fencing, node string,
) (p fencing.Patient, err error) {
	h, err := f.holder(key, spec)
	if err != nil {
		return p, err
	}
	k, err := h.served(h.kind.machine, h.kind.versions)
	if errors.Is(err, ErrNotServed) {
		return p, fmt.Errorf("%w (%w)", err, activities.ErrNotFound)
	}
	if err != nil {
		return p, err
	}
	items, err := h.list(ctx, k)
	if err != nil {
		return p, err
	}
	checks, err := h.HealthChecks(ctx)
	if err != nil {
		return p, err
	}
	n := &corev1.Node{}
	if err := f.Client.Get(ctx, client.ObjectKey{Name: node}, n); client.IgnoreNotFound(err) != nil {
		return p, err
	}
	i := slices.IndexFunc(items, func(o unstructured.Unstructured) bool { return h.describe(&o).Node == node })
	var machine *unstructured.Unstructured
	if i >= 0 {
		machine = &items[i]
	}
	p = h.Judge(machine, n, checks, time.Now())
	if machine != nil && h.takesDisks(machine) {
		pinned, err := h.pinned(ctx)
		if err != nil {
			return p, err
		}
		p.DisksGo = pinned[node]
	}
	return p, nil
}

// takesDisks tells whether whoever fences a Machine deletes it. A NodeHealthCheck and a template have the node started
// again, and so have Machines of metal in OpenShift.
func (h *Holder) takesDisks(machine *unstructured.Unstructured) bool {
	deleting := machine.GetDeletionTimestamp() != nil
	switch h.kind.api {
	case v1alpha1.FencingNodeHealthCheck:
		return false
	case v1alpha1.FencingClusterAPI:
		return deleting || !h.kind.mark.skips
	default:
		id, _, _ := unstructured.NestedString(machine.Object, "spec", "providerID")
		return deleting || !strings.HasPrefix(id, "baremetalhost://")
	}
}

// DeletePods implements activities.Machines.
func (f Fencer) DeletePods(ctx context.Context, key storage.ClusterKey, node string) (deleted int, err error) {
	policy := &v1alpha1.MaintenancePolicy{}
	if err := f.Client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, policy); err != nil {
		return 0, err
	}
	for _, of := range []*metav1.LabelSelector{kube.OSDSelector(policy), kube.MonSelector(policy)} {
		pods, err := f.podsOf(ctx, key.Namespace, of)
		if err != nil {
			return deleted, err
		}
		for i := range pods {
			pod := &pods[i]
			if pod.Spec.NodeName != node {
				continue
			}
			deleted++
			if pod.DeletionTimestamp != nil {
				continue
			}
			if err := f.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
				return deleted, fmt.Errorf("pod %s: %w", pod.Name, err)
			}
		}
	}
	return deleted, nil
}

func (f Fencer) podsOf(ctx context.Context, namespace string, of *metav1.LabelSelector) ([]corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(of)
	if err != nil {
		return nil, fmt.Errorf("selector of pods: %w", err)
	}
	pods := &corev1.PodList{}
	err = f.Client.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector})
	return pods.Items, err
}

// pinned are the nodes of OSDs that can run nowhere else, since their disks are there.
func (f Fencer) pinned(ctx context.Context, key storage.ClusterKey) (map[string]bool, error) {
	policy := &v1alpha1.MaintenancePolicy{}
	if err := f.Client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, policy); err != nil {
		return nil, err
	}
	pods, err := f.podsOf(ctx, key.Namespace, kube.OSDSelector(policy))
	if err != nil {
		return nil, err
	}
	nodes := map[string]bool{}
	for i := range pods {
		pod := &pods[i]
		unplaced := &corev1.Pod{Spec: pod.Spec}
		if unplaced.Spec.NodeName = ""; pod.Spec.NodeName != "" && kube.PodNode(unplaced) != "" {
			nodes[pod.Spec.NodeName] = true
		}
	}
	return nodes, nil
}

// Watched are the kinds of object of which a watcher has to hear. The error wraps ErrNotServed when the API is not
// there.
func (h *Holder) Watched() (kinds []schema.GroupVersionKind, err error) {
	machine, err := h.served(h.kind.machine, h.kind.versions)
	if err != nil {
		return nil, err
	}
	check, err := h.served(h.kind.check, h.checkVersions())
	if err != nil {
		return nil, err
	}
	kinds = append(kinds, machine, check)
	if h.kind.api == v1alpha1.FencingMachineDisruptionBudget {
		budget, err := h.budgetKind()
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, budget)
	}
	return kinds, nil
}

// Look lists the Machines and the health checks.
func (h *Holder) Look(ctx context.Context) (objects []unstructured.Unstructured, checks []HealthCheck, err error) {
	k, err := h.served(h.kind.machine, h.kind.versions)
	if err != nil {
		return nil, nil, err
	}
	if objects, err = h.list(ctx, k); err != nil {
		return nil, nil, err
	}
	checks, err = h.HealthChecks(ctx)
	return objects, checks, err
}

// Describe is a Machine as the decisions know it.
func (h *Holder) Describe(o *unstructured.Unstructured) fencing.Machine { return h.describe(o) }

// Marks stands for everything of the Machines that a keeper has to look at when it changes: by name, and with what the
// MachineDisruptionBudget says.
func (h *Holder) Marks(ctx context.Context, objects []unstructured.Unstructured) (map[string]string, error) {
	marks := make(map[string]string, len(objects))
	for i := range objects {
		m := h.describe(&objects[i])
		marks[m.Name] = fmt.Sprintf("%s %s held %t deleting %t", m.UID, m.Node, m.Held, m.Deleting)
	}
	if h.kind.api != v1alpha1.FencingMachineDisruptionBudget {
		return marks, nil
	}
	k, err := h.budgetKind()
	if err != nil {
		return nil, err
	}
	items, err := h.list(ctx, k)
	for i := range items {
		marks["budget "+items[i].GetName()] = fmt.Sprint(items[i].Object["spec"])
	}
	return marks, err
}
