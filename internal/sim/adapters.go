package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/osdview"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// World stands in for every adapter.
var (
	_ activities.Policies    = (*World)(nil)
	_ activities.Budgets     = (*World)(nil)
	_ activities.Nodes       = (*World)(nil)
	_ cephcluster.Kubernetes = (*World)(nil)
	_ cephcluster.Dialer     = (*World)(nil)
)

const zoneLabel = "topology-location-zone"

func now() metav1.Time { return metav1.NewTime(time.Now()) }

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// Policy implements activities.Policies.
func (w *World) Policy(ctx context.Context, key storage.ClusterKey) (p activities.Policy, err error) {
	err = w.request(ctx, "read policy", func() error {
		if w.policy == nil || key != Key {
			return fmt.Errorf("MaintenancePolicy %s: %w", key, activities.ErrNotFound)
		}
		p = activities.Policy{
			Key: key, Generation: w.policy.Generation, Deleting: w.policy.DeletionTimestamp != nil, Settings: kube.Settings(&w.policy.Spec), Memory: w.memory,
		}
		return nil
	})
	return p, err
}

// ReportStatus implements activities.Policies. A policy's status knows whole seconds only.
func (w *World) ReportStatus(ctx context.Context, _ storage.ClusterKey, r activities.Report) error {
	return w.request(ctx, "report status", func() error {
		if w.policy == nil {
			return nil
		}
		w.report, w.memory = r, remembered(r.Memory)
		for _, e := range r.Events {
			w.tell("event %s %s: %s", e.Node, e.Reason, e.Message)
		}
		return nil
	})
}

func remembered(m activities.Memory) activities.Memory {
	out := activities.Memory{Lease: lease.State{Token: m.Lease.Token}}
	claims := func(from []lease.Claim) []lease.Claim {
		var to []lease.Claim
		for _, c := range from {
			c.Requested, c.Granted = c.Requested.Truncate(time.Second), c.Granted.Truncate(time.Second)
			to = append(to, c)
		}
		return to
	}
	out.Lease.Holders, out.Lease.Queue = claims(m.Lease.Holders), claims(m.Lease.Queue)
	for _, n := range m.Noout {
		n.Since, n.Expires = n.Since.Truncate(time.Second), n.Expires.Truncate(time.Second)
		out.Noout = append(out.Noout, n)
	}
	return out
}

// Guard implements activities.Policies.
func (w *World) Guard(ctx context.Context, _ storage.ClusterKey, on bool) error {
	return w.request(ctx, "guard policy", func() error {
		switch {
		case w.policy == nil:
			return activities.ErrNotFound
		case on && w.policy.DeletionTimestamp == nil:
			w.policy.Finalizers = []string{kube.Finalizer}
		case !on:
			w.policy.Finalizers = nil
			if w.policy.DeletionTimestamp != nil {
				w.memory = activities.Memory{}
			}
			w.dropPolicy()
		}
		return nil
	})
}

// ApplyBudgets implements activities.Budgets.
func (w *World) ApplyBudgets(ctx context.Context, _ storage.ClusterKey, specs budget.Specs) (r activities.BudgetResult, err error) {
	err = w.request(ctx, "write budget", func() error {
		if w.policy == nil {
			return activities.ErrNotFound
		}
		r.Changed = w.setBudget(specs.Daemons)
		return nil
	})
	return r, err
}

// ApplyStaticBudgets implements activities.Budgets.
func (w *World) ApplyStaticBudgets(ctx context.Context, _ storage.ClusterKey, _ []string) (activities.BudgetResult, error) {
	return activities.BudgetResult{}, w.request(ctx, "write static budgets", func() error { return nil })
}

// RemoveBudgets implements activities.Budgets.
func (w *World) RemoveBudgets(ctx context.Context, _ storage.ClusterKey) error {
	return w.request(ctx, "remove budgets", func() error {
		if len(w.budgets) > 0 {
			w.tell("the budget is removed")
		}
		w.budgets, w.guarding = map[string]*budgetObject{}, time.Time{}
		w.tellWatcher()
		return nil
	})
}

func (w *World) nodeState(name string) activities.NodeState {
	n := w.nodes[name]
	if n == nil || n.gone {
		return activities.NodeState{}
	}
	return activities.NodeState{
		Found: true, UID: n.uid, BootID: fmt.Sprintf("boot-%s-%d", n.name, n.boot), Cordoned: n.cordoned, Tainted: n.tainted, Ready: n.ready,
	}
}

// Node implements activities.Nodes.
func (w *World) Node(ctx context.Context, name string) (s activities.NodeState, err error) {
	err = w.request(ctx, "read node", func() error { s = w.nodeState(name); return nil })
	return s, err
}

// AwaitNode implements activities.Nodes.
func (w *World) AwaitNode(ctx context.Context, name string, last activities.NodeState) (s activities.NodeState, err error) {
	if err := w.request(ctx, "watch node", func() error { return nil }); err != nil {
		return s, err
	}
	const window = 10 * time.Minute // then the watch ends, and is begun anew
	w.await(ctx, window, func() bool { s = w.nodeState(name); return s != last })
	return s, ctx.Err()
}

// Cordon implements activities.Nodes.
func (w *World) Cordon(ctx context.Context, name string, on bool) error {
	return w.request(ctx, "cordon", func() error { w.cordon(name, on, byUs); return nil })
}

// EvictOnce implements activities.Nodes.
func (w *World) EvictOnce(ctx context.Context, name string, _ activities.EvictionOptions) (p activities.EvictionProgress, err error) {
	err = w.request(ctx, "evict", func() error {
		for _, x := range slices.Clone(w.pods) {
			if x.node != name || !x.bound {
				continue
			}
			p.Total++
			p.Remaining++
			switch err := w.evict(x, "lockkeeper"); {
			case errors.Is(err, errTwoBudgets):
				return err
			case err != nil && !errors.Is(err, errGone):
				p.Blocked = append(p.Blocked, err.Error())
			}
		}
		return nil
	})
	return p, err
}

// PolicyOf implements activities.Nodes.
func (w *World) PolicyOf(ctx context.Context, name string) (storage.ClusterKey, storage.Answer, error) {
	a := storage.Answer{Reason: "hosts no storage"}
	err := w.request(ctx, "list pods", func() error {
		a.OK = w.policy != nil && slices.ContainsFunc(w.pods, func(p *pod) bool { return p.node == name })
		return nil
	})
	return Key, a, err
}

// MaintenancePolicy implements cephcluster.Kubernetes.
func (w *World) MaintenancePolicy(ctx context.Context, key storage.ClusterKey) (p *v1alpha1.MaintenancePolicy, err error) {
	err = w.request(ctx, "read policy", func() error {
		if w.policy == nil {
			return fmt.Errorf("MaintenancePolicy %s: %w", key, activities.ErrNotFound)
		}
		p = w.policy.DeepCopy()
		return nil
	})
	return p, err
}

// StoragePods implements cephcluster.Kubernetes.
func (w *World) StoragePods(ctx context.Context, _ *v1alpha1.MaintenancePolicy) (out []osdview.Pod, err error) {
	err = w.request(ctx, "list pods", func() error {
		for _, p := range w.pods {
			out = append(out, osdview.Pod{Name: p.name, OSD: p.osd, State: p.state, Node: p.node, Labels: map[string]string{zoneLabel: w.osds[p.osd].zone}})
		}
		return nil
	})
	return out, err
}

// MonPods implements cephcluster.Kubernetes: the mons run outside of this Kubernetes.
func (w *World) MonPods(context.Context, *v1alpha1.MaintenancePolicy) ([]osdview.MonPod, error) {
	return nil, nil
}

// StorageNodes implements cephcluster.Kubernetes.
func (w *World) StorageNodes(ctx context.Context) (out []osdview.Node, err error) {
	err = w.request(ctx, "list nodes", func() error {
		for _, name := range sortedKeys(w.nodes) {
			if n := w.nodes[name]; !n.gone {
				out = append(out, osdview.Node{Name: n.name, Unschedulable: n.cordoned, RemovalTaint: n.tainted, NotReady: !n.ready})
			}
		}
		return nil
	})
	return out, err
}

// ReplacingOSDs implements cephcluster.Kubernetes.
func (w *World) ReplacingOSDs(context.Context, *v1alpha1.MaintenancePolicy) (map[int]bool, error) {
	return nil, nil
}

// ConfigMapValue implements cephcluster.Kubernetes.
func (w *World) ConfigMapValue(context.Context, string, string, string) (string, error) {
	return "a=10.0.0.1:6789", nil
}

// SecretValue implements cephcluster.Kubernetes.
func (w *World) SecretValue(_ context.Context, _, _, key string) (string, error) {
	if strings.Contains(key, "username") {
		return "client.lockkeeper", nil
	}
	return "c2VjcmV0", nil
}
