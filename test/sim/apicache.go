package sim

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/test/sim/kubeapi"
)

// Cache is the API server as a watcher has it in memory: it always answers, at once.
func (w *World) Cache() client.Reader { return cache{w} }

type cache struct{ w *World }

func (c cache) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if p, ok := into.(*v1alpha1.MaintenancePolicy); ok {
		if c.w.policy == nil || key.Name != c.w.key.Name || key.Namespace != c.w.key.Namespace {
			return kubeapi.NotFound("maintenancepolicies", key.Name)
		}
		c.w.policy.DeepCopyInto(p)
		return nil
	}
	cr, ok := into.(*cephv1alpha1.CephOSD)
	if !ok {
		return fmt.Errorf("the simulated cache does not read %T", into)
	}
	if c.w.cr == nil || key.Name != CephOSDName || key.Namespace != c.w.key.Namespace {
		return kubeapi.NotFound("cephosds", key.Name)
	}
	*cr = *c.w.typedCephOSD()
	return nil
}

func (c cache) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	if o.LabelSelector == nil {
		o.LabelSelector = labels.Everything()
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	switch into := into.(type) {
	case *corev1.PodList:
		for _, p := range c.w.pods {
			if o.LabelSelector.Matches(labels.Set(p.labels())) {
				x := p.object()
				x.ManagedFields = p.fields()
				into.Items = append(into.Items, x)
			}
		}
	case *corev1.NodeList:
		for _, name := range c.w.names {
			if n := c.w.nodes[name]; !n.gone {
				into.Items = append(into.Items, n.object())
			}
		}
	case *v1alpha1.MaintenancePolicyList:
		into.Items = c.w.policies()
	default:
		return fmt.Errorf("the simulated cache does not list %T", into)
	}
	return nil
}

// fields are who wrote what of a pod without a controller.
func (p *pod) fields() []metav1.ManagedFieldsEntry {
	type set map[string]any
	owned := map[bool]set{}
	for _, theirs := range []bool{false, true} {
		said := func(values map[string]string) set {
			out := set{}
			for key := range values {
				if p.theirs[key] == theirs {
					out["f:"+key] = set{}
				}
			}
			return out
		}
		owned[theirs] = set{"f:metadata": set{"f:annotations": said(p.made.Annotations), "f:labels": said(p.made.Labels)}}
	}
	owned[!p.ours]["f:spec"] = set{"f:containers": set{}}
	var out []metav1.ManagedFieldsEntry
	for theirs, manager := range map[bool]string{false: kube.FieldOwner, true: string(byPerson)} {
		text, err := json.Marshal(owned[theirs])
		if err != nil {
			panic(err)
		}
		out = append(out, metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(string(text))})
	}
	return out
}
