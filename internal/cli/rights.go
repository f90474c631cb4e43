package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/deploy"
	"github.com/lockkeeper/lockkeeper/internal/kube"
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

// neededRights are all that deploy/rbac.yaml grants, as installed in the namespace system and for these policies. What a
// policy names by itself (its ConfigMap, its Secret) is asked for by that name, whatever rbac.yaml says.
func neededRights(system string, policies []v1alpha1.MaintenancePolicy) ([]need, error) {
	roles, bindings, err := readRBAC(deploy.RBAC)
	if err != nil {
		return nil, err
	}
	var out []need
	add := func(account string, rules []rbacv1.PolicyRule, namespace string) {
		for _, rule := range rules {
			for _, r := range expand(rule, namespace) {
				out = append(out, need{who: kube.Account{Namespace: system, Name: account}, right: r})
			}
		}
	}
	for _, b := range bindings {
		rules := roles[b.role]
		namespace := b.namespace
		if b.role == storageRole {
			continue
		}
		if namespace == "lockkeeper-system" {
			namespace = system
		}
		add(b.account, rules, namespace)
	}
	seen := map[string]bool{}
	for i := range policies {
		p := &policies[i]
		for _, rule := range roles[storageRole] {
			switch {
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
		seen[p.Namespace] = true
	}
	return out, nil
}

type binding struct{ role, account, namespace string }

// readRBAC reads roles by their name, and who is bound to them where ("": in the whole cluster).
func readRBAC(file []byte) (map[string][]rbacv1.PolicyRule, []binding, error) {
	roles, bindings := map[string][]rbacv1.PolicyRule{}, []binding{}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(file), 4096)
	for {
		u := &unstructured.Unstructured{}
		err := documents.Decode(u)
		if errors.Is(err, io.EOF) {
			return roles, bindings, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("deploy/rbac.yaml: %w", err)
		}
		switch u.GetKind() {
		case "ClusterRole", "Role":
			var r rbacv1.ClusterRole // a Role has the same rules
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &r)
			roles[roleName(u.GetKind(), u.GetNamespace(), r.Name)] = r.Rules
		case "ClusterRoleBinding", "RoleBinding":
			var b rbacv1.RoleBinding // a ClusterRoleBinding has no namespace, and otherwise the same
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &b)
			for _, s := range b.Subjects {
				bindings = append(bindings, binding{role: roleName(b.RoleRef.Kind, b.Namespace, b.RoleRef.Name), account: s.Name, namespace: b.Namespace})
			}
		}
		if err != nil {
			return nil, nil, fmt.Errorf("deploy/rbac.yaml: %s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
}

func roleName(kind, namespace, name string) string {
	if kind == "Role" {
		return namespace + "/" + name
	}
	return name
}

// expand makes single rights of a rule.
func expand(rule rbacv1.PolicyRule, namespace string) []kube.Right {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var out []kube.Right
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			resource, subresource, _ := strings.Cut(resource, "/")
			for _, verb := range rule.Verbs {
				for _, name := range names {
					out = append(out, kube.Right{Verb: verb, Group: group, Resource: resource, Subresource: subresource, Namespace: namespace, Name: name})
				}
			}
		}
	}
	return out
}
