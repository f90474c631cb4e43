package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/test/sim/kubeapi"
)

// policyClient is the API server for MaintenancePolicies, and for events.
type policyClient struct {
	client.Client
	*World
	user owner
}

func (c policyClient) ask(ctx context.Context, op string, do func() error) error {
	return server{World: c.World, user: c.user}.ask(ctx, op, do)
}

func (c policyClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if _, ok := o.(*v1alpha1.MaintenancePolicy); !ok {
		return c.getCephOSD(ctx, key, o)
	}
	return c.ask(ctx, "read policy", func() error {
		p, ok := o.(*v1alpha1.MaintenancePolicy)
		if ok && c.older != nil && key.Name == c.older.Name && key.Namespace == c.older.Namespace {
			c.older.DeepCopyInto(p)
			return nil
		}
		if !ok || c.policy == nil || key.Name != c.key.Name || key.Namespace != c.key.Namespace {
			return kubeapi.NotFound("maintenancepolicies", key.Name)
		}
		c.policy.DeepCopyInto(p)
		return nil
	})
}

func (c policyClient) List(ctx context.Context, o client.ObjectList, _ ...client.ListOption) error {
	return c.ask(ctx, "list policies", func() error {
		l, ok := o.(*v1alpha1.MaintenancePolicyList)
		if !ok {
			return fmt.Errorf("the simulated API server does not list %T", o)
		}
		l.Items = c.policies()
		return nil
	})
}

// policies are all that there are.
func (w *World) policies() (out []v1alpha1.MaintenancePolicy) {
	for _, p := range []*v1alpha1.MaintenancePolicy{w.older, w.elsewhere, w.policy} {
		if p != nil {
			out = append(out, *p.DeepCopy())
		}
	}
	return out
}

// Create knows events.
func (c policyClient) Create(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
	return c.ask(ctx, "create event", func() error {
		e, ok := o.(*corev1.Event)
		if !ok {
			return fmt.Errorf("the simulated API server does not create %T", o)
		}
		if e.InvolvedObject.Kind == "Node" {
			return nil // the policy has the same
		}
		c.tell("event %s: %s", e.Reason, e.Message)
		if e.Reason == "HoldRemoved" && c.machines != nil {
			c.machines.blames(e.Message)
		}
		if e.Reason == "NooutClaimed" || e.Reason == "NooutLate" {
			c.noteClaimed(e.Message)
		}
		return nil
	})
}

func (c policyClient) Patch(ctx context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	return c.ask(ctx, "update policy", func() error {
		if c.policy == nil {
			return kubeapi.NotFound("maintenancepolicies", o.GetName())
		}
		next := &v1alpha1.MaintenancePolicy{}
		if err := kubeapi.Patched(c.policy, next, patch.Type(), data); err != nil {
			return err
		}
		if next.ResourceVersion != c.policy.ResourceVersion {
			return kubeapi.Conflict("maintenancepolicies", o.GetName())
		}
		c.putPolicy(next)
		return nil
	})
}

// putPolicy is any change of the policy but that of its status.
func (w *World) putPolicy(next *v1alpha1.MaintenancePolicy) {
	if !equality.Semantic.DeepEqual(next.Spec, w.policy.Spec) {
		next.Generation++
		w.edited = time.Now()
	}
	w.policy = next
	w.versioned()
	w.dropPolicy()
}

func (w *World) versioned() {
	w.version++
	w.policy.ResourceVersion = fmt.Sprint(w.version)
}

// dropPolicy ends a policy that is deleted and that no finalizer holds, with what it owns.
func (w *World) dropPolicy() {
	if w.policy == nil || w.policy.DeletionTimestamp == nil || len(w.policy.Finalizers) > 0 {
		return
	}
	w.tell("the policy is gone")
	w.collect(w.policy.UID)
	w.policy = nil
}

// collect deletes the budgets that a policy owned.
func (w *World) collect(policy types.UID) {
	for _, name := range slices.Sorted(maps.Keys(w.budgets)) {
		owners := w.budgets[name].OwnerReferences
		if slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return o.UID == policy }) {
			w.dropBudget(name, "the garbage collector")
		}
	}
}

func (c policyClient) Status() client.SubResourceWriter { return statusClient{policyClient: c} }

type statusClient struct {
	client.SubResourceWriter
	policyClient policyClient
}

// Update writes a status through JSON, as it would go over the wire: times lose what is below a second.
func (s statusClient) Update(ctx context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	if x, ok := o.(*cephv1alpha1.CephOSD); ok {
		return s.policyClient.reportCephOSD(ctx, x)
	}
	p, ok := o.(*v1alpha1.MaintenancePolicy)
	if !ok {
		return fmt.Errorf("the simulated API server knows no status of %T", o)
	}
	text, err := json.Marshal(p.Status)
	if err != nil {
		return err
	}
	if bytes.Contains(text, []byte(`":null`)) { // a time that is required, and missing
		return fmt.Errorf("the status is invalid, it has a null: %s", text)
	}
	var status v1alpha1.MaintenancePolicyStatus
	if err := json.Unmarshal(text, &status); err != nil {
		return err
	}
	return s.policyClient.ask(ctx, "report status", func() error {
		w := s.policyClient.World
		if w.policy == nil {
			return kubeapi.NotFound("maintenancepolicies", p.Name)
		}
		if p.ResourceVersion != w.policy.ResourceVersion {
			return kubeapi.Conflict("maintenancepolicies", p.Name)
		}
		claimed := !equality.Semantic.DeepEqual(status.Ceph, w.policy.Status.Ceph)
		w.noteHolders()
		w.policy.Status = status
		w.versioned()
		if claimed {
			w.tellWatcher()
		}
		return nil
	})
}

// Patch writes a part of a status.
func (s statusClient) Patch(
	ctx context.Context, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption,
) error {
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	return s.policyClient.ask(ctx, "patch status", func() error {
		w := s.policyClient.World
		if w.policy == nil {
			return kubeapi.NotFound("maintenancepolicies", o.GetName())
		}
		next := &v1alpha1.MaintenancePolicy{}
		if err := kubeapi.Patched(w.policy, next, patch.Type(), data); err != nil {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "MaintenancePolicy"}, o.GetName(), nil) // a test that failed
		}
		if next.ResourceVersion != w.policy.ResourceVersion {
			return kubeapi.Conflict("maintenancepolicies", o.GetName())
		}
		w.policy.Status = next.Status
		w.versioned()
		return nil
	})
}
