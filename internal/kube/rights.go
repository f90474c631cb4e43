package kube

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
)

// This file reads what manifests grant.

// Binding gives an account a role; Namespace "": in the whole cluster, or where the file leaves that to whoever applies
// it.
type Binding struct {
	Role, Account, Namespace string
	// Everywhere: it is bound in the whole cluster, in whatever namespace its file is applied.
	Everywhere bool
}

// ReadRBAC reads roles by their name, and who is bound to them where ("": in the whole cluster).
func ReadRBAC(file []byte) (map[string][]rbacv1.PolicyRule, []Binding, error) {
	roles, bindings := map[string][]rbacv1.PolicyRule{}, []Binding{}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(file), 4096)
	for {
		u := &unstructured.Unstructured{}
		err := documents.Decode(u)
		if errors.Is(err, io.EOF) {
			return roles, bindings, nil
		}
		if err != nil {
			return nil, nil, err
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
				bindings = append(bindings, Binding{
					Role: roleName(b.RoleRef.Kind, b.Namespace, b.RoleRef.Name), Account: s.Name,
					Namespace: b.Namespace, Everywhere: u.GetKind() == "ClusterRoleBinding",
				})
			}
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
}

func roleName(kind, namespace, name string) string {
	if kind == "Role" && namespace != "" {
		return namespace + "/" + name
	}
	return name
}

// RightsOf makes single rights of a rule.
func RightsOf(rule rbacv1.PolicyRule, namespace string) []Right {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var out []Right
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			resource, subresource, _ := strings.Cut(resource, "/")
			for _, verb := range rule.Verbs {
				for _, name := range names {
					out = append(out, Right{
						Verb: verb, Group: group, Resource: resource, Subresource: subresource,
						Namespace: namespace, Name: name,
					})
				}
			}
		}
	}
	return out
}

// GrantedBy are all rights that a file of manifests grants, to whomever, when it is applied in a namespace.
func GrantedBy(file []byte, namespace string) ([]Right, error) {
	roles, bindings, err := ReadRBAC(file)
	if err != nil {
		return nil, err
	}
	var out []Right
	for _, b := range bindings {
		for _, rule := range roles[b.Role] {
			out = append(out, RightsOf(rule, namespace)...)
		}
	}
	return out, nil
}
