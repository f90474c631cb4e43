package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
)

// Outlook is what a drain of a node would do to its pods, by kubectl's own filters.
type Outlook struct {
	Evict []string `json:"evict,omitempty"` // namespace/name
	// Warnings are kubectl's words about pods that stay, or go for good.
	Warnings []string `json:"warnings,omitempty"`
	// Refused says which pods nobody may evict with these options; the drain would wait for them.
	Refused []string `json:"refused,omitempty"`
}

// DrainOutlook lists what EvictOnce would evict. It changes nothing.
func (c *Cluster) DrainOutlook(
	ctx context.Context, node string, opts activities.EvictionOptions, storageNamespaces []string,
) (Outlook, error) {
	list, errs := c.drainHelper(ctx, opts, storageNamespaces).GetPodsForDeletion(node)
	if list == nil {
		if len(errs) > 0 {
			return Outlook{}, errs[0]
		}
		return Outlook{}, fmt.Errorf("kubectl's filters gave no answer for the pods of %s", node)
	}
	out := Outlook{}
	if w := list.Warnings(); w != "" {
		out.Warnings = sortedNames(strings.Split(w, "; "))
	}
	for _, pod := range list.Pods() {
		out.Evict = append(out.Evict, pod.Namespace+"/"+pod.Name)
	}
	for _, err := range errs {
		out.Refused = append(out.Refused, err.Error())
	}
	slices.Sort(out.Refused)
	return out, nil
}

// MaintenancePolicies lists the policies of a namespace, or, with "", of all.
func (c *Cluster) MaintenancePolicies(ctx context.Context, namespace string) ([]v1alpha1.MaintenancePolicy, error) {
	var list v1alpha1.MaintenancePolicyList
	if err := c.api.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	return list.Items, nil
}
