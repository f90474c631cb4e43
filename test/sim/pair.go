package sim

import (
	"context"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Pair is two storage clusters on the same nodes: two Worlds, each with a Ceph and a namespace of its own, whose nodes
// are the same. What happens to a node happens in both. It is lockkeeper's adapter in front of the two.
type Pair struct {
	worlds   []*World
	kube     []*kube.Cluster
	clusters []activities.StorageClusters
}

// NewPair joins Worlds whose keys differ, in the order of their keys.
func NewPair(worlds ...*World) Pair {
	p := Pair{worlds: worlds}
	for _, w := range worlds {
		k := w.Kubernetes()
		p.kube, p.clusters = append(p.kube, k), append(p.clusters, cephcluster.New(k, w))
	}
	return p
}

// index is whose policy this is; the first one for a policy that nobody has.
func (p Pair) index(key storage.ClusterKey) int {
	return max(slices.IndexFunc(p.worlds, func(w *World) bool { return w.key == key }), 0)
}

func (p Pair) of(key storage.ClusterKey) *kube.Cluster { return p.kube[p.index(key)] }

// Key names the World's policy.
func (w *World) Key() storage.ClusterKey { return w.key }

// StorageCluster implements activities.StorageClusters.
func (p Pair) StorageCluster(ctx context.Context, key storage.ClusterKey) (activities.StorageCluster, error) {
	return p.clusters[p.index(key)].StorageCluster(ctx, key)
}

// StorageClusterOf implements activities.StorageClusters.
func (p Pair) StorageClusterOf(ctx context.Context, of activities.Policy) (activities.StorageCluster, error) {
	return p.clusters[p.index(of.Key)].StorageClusterOf(ctx, of)
}

// Node implements activities.Nodes.
func (p Pair) Node(ctx context.Context, name string) (activities.NodeState, error) {
	for _, k := range p.kube[1:] {
		if _, err := k.Node(ctx, name); err != nil { // each World notes that it was looked at
			return activities.NodeState{}, err
		}
	}
	return p.kube[0].Node(ctx, name)
}

// AwaitNode implements activities.Nodes.
func (p Pair) AwaitNode(
	ctx context.Context, name string, until func(activities.NodeState) bool,
) (activities.NodeState, error) {
	return p.kube[0].AwaitNode(ctx, name, until)
}

// Cordon implements activities.Nodes. There is one node: what became of it in the first World becomes of it in all.
func (p Pair) Cordon(ctx context.Context, name, uid string, on bool) (bool, error) {
	same, err := p.kube[0].Cordon(ctx, name, uid, on)
	if p.worlds[0].Cordoned(name) == on {
		for _, w := range p.worlds[1:] {
			w.happens(func() {
				if w.nodes[name].cordoned != on {
					w.cordon(name, on, byUs)
				}
			})
		}
	}
	return same, err
}

// EvictOnce implements activities.Nodes.
func (p Pair) EvictOnce(ctx context.Context, in activities.Eviction) (out activities.EvictionProgress, err error) {
	for _, k := range p.kube {
		x, err := k.EvictOnce(ctx, in)
		if err != nil {
			return out, err
		}
		out.Total, out.Remaining = out.Total+x.Total, out.Remaining+x.Remaining
		out.Blocked = append(out.Blocked, x.Blocked...)
	}
	return out, nil
}

// PodsGone implements activities.Nodes. Nobody hears of the others' pods at once.
func (p Pair) PodsGone(ctx context.Context, node string) (<-chan struct{}, error) {
	return p.kube[0].PodsGone(ctx, node)
}

// PoliciesOf implements activities.Nodes.
func (p Pair) PoliciesOf(ctx context.Context, node string) (all []storage.ClusterKey, a storage.Answer, err error) {
	for _, k := range p.kube {
		some, answer, err := k.PoliciesOf(ctx, node)
		if err != nil {
			return nil, a, err
		}
		if all = append(all, some...); !a.OK {
			a = answer
		}
	}
	slices.SortFunc(all, func(a, b storage.ClusterKey) int { return strings.Compare(a.String(), b.String()) })
	return all, a, nil
}

// FencingPolicies implements activities.Nodes.
func (p Pair) FencingPolicies(ctx context.Context) (all []storage.ClusterKey, err error) {
	for _, k := range p.kube {
		some, err := k.FencingPolicies(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// Policy implements activities.Policies.
func (p Pair) Policy(ctx context.Context, key storage.ClusterKey) (activities.Policy, error) {
	return p.of(key).Policy(ctx, key)
}

// ReportStatus implements activities.Policies.
func (p Pair) ReportStatus(ctx context.Context, key storage.ClusterKey, r activities.Report) error {
	return p.of(key).ReportStatus(ctx, key, r)
}

// HostedByPods implements activities.Policies.
func (p Pair) HostedByPods(ctx context.Context, of activities.Policy) (map[string]fencing.Hosted, error) {
	return p.of(of.Key).HostedByPods(ctx, of)
}

// RenewStatus implements activities.Policies.
func (p Pair) RenewStatus(ctx context.Context, key storage.ClusterKey, r activities.Renewal) (bool, error) {
	return p.of(key).RenewStatus(ctx, key, r)
}

// Guard implements activities.Policies.
func (p Pair) Guard(ctx context.Context, key storage.ClusterKey, on bool) error {
	return p.of(key).Guard(ctx, key, on)
}

// Ending implements activities.Policies.
func (p Pair) Ending(ctx context.Context, key storage.ClusterKey) (budget.Ending, error) {
	return p.of(key).Ending(ctx, key)
}

// TellOfNamespace implements activities.Policies.
func (p Pair) TellOfNamespace(ctx context.Context, key storage.ClusterKey, e activities.Event) error {
	return p.of(key).TellOfNamespace(ctx, key, e)
}

// ReadBudgets implements activities.Budgets.
func (p Pair) ReadBudgets(ctx context.Context, key storage.ClusterKey) (budget.Book, bool, error) {
	return p.of(key).ReadBudgets(ctx, key)
}

// ApplyBudgets implements activities.Budgets.
func (p Pair) ApplyBudgets(ctx context.Context, in activities.BudgetInput) (activities.BudgetResult, error) {
	return p.of(in.Cluster).ApplyBudgets(ctx, in)
}

// RaiseAlarm implements activities.Budgets.
func (p Pair) RaiseAlarm(ctx context.Context, key storage.ClusterKey, why string) error {
	return p.of(key).RaiseAlarm(ctx, key, why)
}

// ApplyStaticBudgets implements activities.Budgets.
func (p Pair) ApplyStaticBudgets(
	ctx context.Context, in activities.StaticBudgetsInput,
) (activities.StaticBudgetsResult, error) {
	return p.of(in.Cluster).ApplyStaticBudgets(ctx, in)
}

// Relocate implements activities.Budgets.
func (p Pair) Relocate(ctx context.Context, in activities.RelocateInput) (activities.RelocateResult, error) {
	return p.of(in.Cluster).Relocate(ctx, in)
}

// TakeBackOverrides implements activities.Budgets.
func (p Pair) TakeBackOverrides(ctx context.Context, key storage.ClusterKey, all []storage.Override) error {
	return p.of(key).TakeBackOverrides(ctx, key, all)
}

// RemoveBudgets implements activities.Budgets.
func (p Pair) RemoveBudgets(
	ctx context.Context, key storage.ClusterKey, progress func(done int), holds func() error,
) error {
	return p.of(key).RemoveBudgets(ctx, key, progress, holds)
}
