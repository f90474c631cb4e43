package cli

import (
	"fmt"
	"maps"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/deploy"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Names in deploy/rbac.yaml.
const (
	watcherAccount = "lockkeeper-watcher"
	workerAccount  = "lockkeeper-worker"
	// storageRole is what the worker needs in the namespace of each storage cluster.
	storageRole = "lockkeeper-worker-storage"
	// watcherStorageRole is what the watcher needs there.
	watcherStorageRole = "lockkeeper-watcher-storage"
)

// need is a right of one account.
type need struct {
	who   kube.Account
	right kube.Right
}

// ownRights are what this command needs for whoever runs it.
var ownRights = []kube.Right{
	{Verb: "list", Group: "lockkeeper.io", Resource: "maintenancepolicies"},
	{Verb: "get", Resource: "nodes"},
	{Verb: "list", Resource: "pods"}, // drain --plan and explain say what would be evicted
	{Verb: "get", Group: "apps", Resource: "daemonsets"},
	{Verb: "list", Group: "ceph.elemental.net", Resource: "cephosds"}, // update-osds, its --plan, status and skip
	{Verb: "get", Group: "ceph.elemental.net", Resource: "cephosds"},
	{Verb: "list", Resource: "nodes"},                      // a plan of a rollout says where OSDs cannot serve
	{Verb: "list", Group: "apps", Resource: "deployments"}, // restart-osds --plan
}

// neededRights are all that deploy/rbac.yaml grants, as installed in the namespace system and for these policies. What
// a policy names by itself (its ConfigMap, its Secret) is asked for by that name, whatever rbac.yaml says.
func neededRights(system string, policies []v1alpha1.MaintenancePolicy) ([]need, error) {
	roles, bindings, err := kube.ReadRBAC(deploy.RBAC)
	if err != nil {
		return nil, fmt.Errorf("deploy/rbac.yaml: %w", err)
	}
	longhorn, err := longhornRights()
	if err != nil {
		return nil, err
	}
	var out []need
	add := func(account string, rules []rbacv1.PolicyRule, namespace string) {
		for _, rule := range rules {
			for _, r := range kube.RightsOf(rule, namespace) {
				out = append(out, need{who: kube.Account{Namespace: system, Name: account}, right: r})
			}
		}
	}
	for _, b := range bindings {
		rules := roles[b.Role]
		namespace := b.Namespace
		if b.Role == storageRole {
			continue
		}
		if namespace == "lockkeeper-system" {
			namespace = system
		}
		add(b.Account, rules, namespace)
	}
	seen := map[string]bool{}
	for i := range policies {
		p := &policies[i]
		for _, rule := range roles[storageRole] {
			switch {
			case len(rule.ResourceNames) > 0 && kube.KindOf(p) != storage.Ceph:
				continue // where its mons are, and its credentials
			case len(rule.ResourceNames) > 0 && rule.Resources[0] == "configmaps":
				rule.ResourceNames = []string{kube.Endpoints(p)}
			case len(rule.ResourceNames) > 0 && rule.Resources[0] == "secrets":
				rule.ResourceNames = []string{kube.Credentials(p)}
			case seen[p.Namespace]:
				continue
			}
			add(workerAccount, []rbacv1.PolicyRule{rule}, p.Namespace)
		}
		if !seen[p.Namespace] {
			add(watcherAccount, roles[watcherStorageRole], p.Namespace)
		}
		if kube.KindOf(p) == storage.Longhorn {
			add(workerAccount, longhorn["lockkeeper-worker-longhorn"], p.Namespace)
			add(workerAccount, longhorn["lockkeeper-worker-one-writer"], "")
			for _, role := range optionalRoles(p) {
				add(workerAccount, longhorn["lockkeeper-worker-"+role], p.Namespace)
			}
		}
		seen[p.Namespace] = true
	}
	return out, nil
}

// longhornRights are the roles of all files for Longhorn, by name.
func longhornRights() (map[string][]rbacv1.PolicyRule, error) {
	all := map[string][]rbacv1.PolicyRule{}
	for file, raw := range map[string][]byte{
		"": deploy.Longhorn, "-detach": deploy.LonghornDetach, "-evict": deploy.LonghornEvict,
	} {
		roles, _, err := kube.ReadRBAC(raw)
		if err != nil {
			return nil, fmt.Errorf("deploy/storage-namespace-longhorn%s.yaml: %w", file, err)
		}
		maps.Copy(all, roles)
	}
	return all, nil
}

// optionalRoles are those that a policy for Longhorn needs for what it asks for beyond the rest: each has a file
// deploy/storage-namespace-ROLE.yaml.
func optionalRoles(p *v1alpha1.MaintenancePolicy) (roles []string) {
	s := kube.Settings(&p.Spec)
	if s.DetachOnCordon {
		roles = append(roles, "longhorn-detach")
	}
	if s.EvictOnRemoval {
		roles = append(roles, "longhorn-evict")
	}
	return roles
}
