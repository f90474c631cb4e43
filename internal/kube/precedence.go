package kube

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/precedence"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file settles which of two policies looks after a storage cluster when both mean the same one: the older. Two
// keepers would each open a failure domain, and put each pod under two budgets.

// Precedence answers whether a policy is the one in charge of its storage cluster; if not, the reason names the policy
// that was first, and says why the two mean the same cluster. others may be any policies, the policy itself included;
// pods are the labels of the pods in the policy's namespace.
//
// Policies of one namespace are compared by what they say: where the mons are, and which pods are OSDs. Any two are
// compared by the ID that their storage cluster told, which stands in their status: see package precedence.
func Precedence(
	p *v1alpha1.MaintenancePolicy, others []v1alpha1.MaintenancePolicy, pods []labels.Set,
) (storage.Answer, storage.ClusterKey) {
	rivals := rivalsOf(p, others)
	slices.SortFunc(rivals, byAge)
	for _, r := range rivals {
		if why := sameCluster(p, r, pods); why != "" {
			first := claimant(r)
			return storage.Answer{Reason: precedence.First(first, why)}, first.Key
		}
	}
	if s := standing(p, others); s.First != "" {
		return storage.Answer{Reason: s.First}, s.Key
	}
	return storage.Answer{OK: true}, storage.ClusterKey{}
}

// standing is where a policy stands by the IDs of the storage clusters, as far as the statuses tell them.
func standing(p *v1alpha1.MaintenancePolicy, others []v1alpha1.MaintenancePolicy) precedence.Standing {
	return precedence.Judge(claimant(p), "", claimants(others))
}

// Waits names the younger policy because of which nothing may open under this one yet, if the statuses tell of one.
func Waits(p *v1alpha1.MaintenancePolicy, others []v1alpha1.MaintenancePolicy) storage.ClusterKey {
	if s := standing(p, others); s.First == "" {
		return s.Key
	}
	return storage.ClusterKey{}
}

func claimant(p *v1alpha1.MaintenancePolicy) precedence.Policy {
	return precedence.Policy{
		Key:     storage.ClusterKey{Namespace: p.Namespace, Name: p.Name},
		Created: p.CreationTimestamp.Time, Claim: claimOf(&p.Status),
		Unguarded: !Settings(&p.Spec).ManagePodBudgets,
	}
}

func claimants(policies []v1alpha1.MaintenancePolicy) []precedence.Policy {
	out := make([]precedence.Policy, len(policies))
	for i := range policies {
		out[i] = claimant(&policies[i])
	}
	return out
}

// rivalsOf are the older policies of the same namespace.
func rivalsOf(p *v1alpha1.MaintenancePolicy, others []v1alpha1.MaintenancePolicy) []*v1alpha1.MaintenancePolicy {
	var out []*v1alpha1.MaintenancePolicy
	for i := range others {
		if o := &others[i]; o.Namespace == p.Namespace && o.Name != p.Name && byAge(o, p) < 0 {
			out = append(out, o)
		}
	}
	return out
}

func byAge(a, b *v1alpha1.MaintenancePolicy) int {
	return precedence.Compare(claimant(a), claimant(b))
}

func sameCluster(a, b *v1alpha1.MaintenancePolicy, pods []labels.Set) string {
	if KindOf(a) != KindOf(b) {
		return ""
	}
	if KindOf(a) == storage.Longhorn {
		return "both are for the Longhorn of their namespace"
	}
	if m := monEndpoints(a); m == monEndpoints(b) {
		return fmt.Sprintf("both find its mons in ConfigMap %s, key %s", m.Name, m.Key)
	}
	mine, err := metav1.LabelSelectorAsSelector(OSDSelector(a))
	theirs, err2 := metav1.LabelSelectorAsSelector(OSDSelector(b))
	if err != nil || err2 != nil {
		return "" // its keeper says so
	}
	for _, pod := range pods {
		if mine.Matches(pod) && theirs.Matches(pod) {
			return fmt.Sprintf("both select the pods with %s", theirs)
		}
	}
	return ""
}

func monEndpoints(p *v1alpha1.MaintenancePolicy) v1alpha1.KeyReference {
	if c := p.Spec.Ceph; c != nil && c.Connection.MonEndpoints != (v1alpha1.KeyReference{}) {
		return c.Connection.MonEndpoints
	}
	return v1alpha1.KeyReference{Name: "rook-ceph-mon-endpoints", Key: "data"}
}

// Policy implements activities.Policies: one request for all policies, and one more only if an older one is in the same
// namespace. The list is as of now and no cache's: that it holds this policy's claim and nobody else's is what lets its
// keeper open anything.
func (c *Cluster) Policy(ctx context.Context, key storage.ClusterKey) (activities.Policy, error) {
	var list v1alpha1.MaintenancePolicyList
	if err := c.api.List(ctx, &list); err != nil {
		return activities.Policy{}, err
	}
	i := slices.IndexFunc(list.Items, func(p v1alpha1.MaintenancePolicy) bool {
		return p.Namespace == key.Namespace &&
			p.Name == key.Name
	})
	if i < 0 {
		return activities.Policy{}, fmt.Errorf("MaintenancePolicy %s: %w", key, activities.ErrNotFound)
	}
	p := &list.Items[i]
	c.read.Store(key, p.DeepCopy())
	charge, first, err := c.byConfiguration(ctx, p, list.Items)
	if err != nil {
		return activities.Policy{}, err
	}
	return activities.Policy{
		Key: key, UID: string(p.UID), Generation: p.Generation, Deleting: !p.DeletionTimestamp.IsZero(),
		Settings: Settings(&p.Spec), Memory: memoryOf(&p.Status), Second: charge.Reason, First: first,
		Listed: claimants(list.Items), Object: p, Kind: KindOf(p),
		Daemons: metav1.FormatLabelSelector(OSDSelector(p)), Mons: metav1.FormatLabelSelector(MonSelector(p)),
		Managers: metav1.FormatLabelSelector(ManagerSelector(p)),
	}, nil
}

// byConfiguration is Precedence by what the policies say alone: what a status tells of its storage cluster may be out
// of date, and its keeper is about to look.
func (c *Cluster) byConfiguration(
	ctx context.Context, p *v1alpha1.MaintenancePolicy, others []v1alpha1.MaintenancePolicy,
) (storage.Answer, storage.ClusterKey, error) {
	if len(rivalsOf(p, others)) == 0 {
		return storage.Answer{OK: true}, storage.ClusterKey{}, nil
	}
	unclaimed := p.DeepCopy()
	unclaimed.Status.Ceph, unclaimed.Status.Longhorn = nil, nil
	return c.precedence(ctx, unclaimed, others)
}

func (c *Cluster) precedence(
	ctx context.Context, p *v1alpha1.MaintenancePolicy, others []v1alpha1.MaintenancePolicy,
) (storage.Answer, storage.ClusterKey, error) {
	var sets []labels.Set
	if len(rivalsOf(p, others)) > 0 {
		pods, err := c.StoragePods(ctx, p)
		if err != nil {
			return storage.Answer{}, storage.ClusterKey{}, err
		}
		for i := range pods {
			sets = append(sets, pods[i].Labels)
		}
	}
	answer, first := Precedence(p, others, sets)
	return answer, first, nil
}
