package kube

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file settles which of two policies looks after a storage cluster when both mean the same one: the older. Two
// keepers would each open a failure domain, and put each pod under two budgets.

// Precedence answers whether a policy is the one in charge of its storage cluster; if not, the reason names the policy that
// was first, and says why the two mean the same cluster. others may be any policies, the policy itself included; pods are
// the labels of the pods in the policy's namespace.
//
// Only policies of one namespace are compared: budgets and pods are of one namespace, so a policy elsewhere has nothing
// that it could disrupt.
func Precedence(p *v1alpha1.MaintenancePolicy, others []v1alpha1.MaintenancePolicy, pods []labels.Set) (storage.Answer, storage.ClusterKey) {
	rivals := rivalsOf(p, others)
	slices.SortFunc(rivals, func(a, b *v1alpha1.MaintenancePolicy) int {
		if olderThan(a, b) {
			return -1
		}
		return 1
	})
	for _, r := range rivals {
		if why := sameCluster(p, r, pods); why != "" {
			key := storage.ClusterKey{Namespace: r.Namespace, Name: r.Name}
			return storage.Answer{Reason: fmt.Sprintf("MaintenancePolicy %s was first (%s), and looks after the same storage cluster: %s; this one manages nothing. Delete one of the two",
				key, r.CreationTimestamp.UTC().Format("2006-01-02 15:04:05"), why)}, key
		}
	}
	return storage.Answer{OK: true}, storage.ClusterKey{}
}

// rivalsOf are the older policies of the same namespace.
func rivalsOf(p *v1alpha1.MaintenancePolicy, others []v1alpha1.MaintenancePolicy) []*v1alpha1.MaintenancePolicy {
	var out []*v1alpha1.MaintenancePolicy
	for i := range others {
		if o := &others[i]; o.Namespace == p.Namespace && o.Name != p.Name && olderThan(o, p) {
			out = append(out, o)
		}
	}
	return out
}

// olderThan orders any two policies; those of one second by name, so that both keepers come to the same answer.
func olderThan(a, b *v1alpha1.MaintenancePolicy) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

func sameCluster(a, b *v1alpha1.MaintenancePolicy, pods []labels.Set) string {
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

// Policy implements activities.Policies: one request, and one more only if an older policy is in the same namespace.
func (c *Cluster) Policy(ctx context.Context, key storage.ClusterKey) (activities.Policy, error) {
	var list v1alpha1.MaintenancePolicyList
	if err := c.api.List(ctx, &list, client.InNamespace(key.Namespace)); err != nil {
		return activities.Policy{}, err
	}
	i := slices.IndexFunc(list.Items, func(p v1alpha1.MaintenancePolicy) bool { return p.Name == key.Name })
	if i < 0 {
		return activities.Policy{}, fmt.Errorf("MaintenancePolicy %s: %w", key, activities.ErrNotFound)
	}
	p := &list.Items[i]
	charge, err := c.precedence(ctx, p, list.Items)
	if err != nil {
		return activities.Policy{}, err
	}
	return activities.Policy{
		Key: key, Generation: p.Generation, Deleting: !p.DeletionTimestamp.IsZero(),
		Settings: Settings(&p.Spec), Memory: memoryOf(&p.Status), Second: charge.Reason,
		Daemons: metav1.FormatLabelSelector(OSDSelector(p)), Mons: metav1.FormatLabelSelector(MonSelector(p)),
	}, nil
}

func (c *Cluster) precedence(ctx context.Context, p *v1alpha1.MaintenancePolicy, others []v1alpha1.MaintenancePolicy) (storage.Answer, error) {
	if len(rivalsOf(p, others)) == 0 {
		return storage.Answer{OK: true}, nil
	}
	pods, err := c.StoragePods(ctx, p)
	if err != nil {
		return storage.Answer{}, err
	}
	sets := make([]labels.Set, len(pods))
	for i := range pods {
		sets[i] = pods[i].Labels
	}
	answer, _ := Precedence(p, others, sets)
	return answer, nil
}
