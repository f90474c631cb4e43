package starter

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// HomesIn are Homes by a cache of policies and pods.
func HomesIn(objects client.Reader) Homes { return cachedHomes{objects} }

// cachedHomes implements Homes over a cache of policies and pods.
type cachedHomes struct{ client.Reader }

// daemons are the pods by which a policy's storage is known to be on a node.
type daemons struct {
	kind      storage.Kind
	namespace string
	is        func(labels.Set) bool
	expiry    time.Duration
}

// On implements Homes. A policy that makes no sense, or is going, looks after nothing.
func (h cachedHomes) On(ctx context.Context, node string) (out Home, err error) {
	var policies v1alpha1.MaintenancePolicyList
	if err := h.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return Home{}, fmt.Errorf("list policies in the cache: %w", err)
	}
	for i := range policies.Items {
		d, known := daemonsOf(&policies.Items[i])
		if !known {
			continue
		}
		var pods corev1.PodList
		if err := h.List(ctx, &pods, client.UnsafeDisableDeepCopy, client.InNamespace(d.namespace)); err != nil {
			return Home{}, fmt.Errorf("list pods in the cache: %w", err)
		}
		if slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return kube.PodNode(&p) == node && d.is(p.Labels) }) {
			out.Kinds, out.Expiry = append(out.Kinds, d.kind), max(out.Expiry, d.expiry)
		}
	}
	slices.Sort(out.Kinds)
	out.Kinds = slices.Compact(out.Kinds)
	return out, nil
}

func daemonsOf(p *v1alpha1.MaintenancePolicy) (d daemons, known bool) {
	if !p.DeletionTimestamp.IsZero() {
		return daemons{}, false
	}
	s, err := selectorsOf(p)
	if err != nil {
		return daemons{}, false
	}
	return daemons{
		kind: kube.KindOf(p), namespace: p.Namespace, expiry: kube.Settings(&p.Spec).RemovalTaintExpiry,
		is: func(l labels.Set) bool { return s.osds.Matches(l) || s.daemons[kube.DaemonMon].Matches(l) },
	}, true
}
