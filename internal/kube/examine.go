package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file looks at the installation itself, not at storage: what `lockkeeper doctor` asks.

// ServerVersion is the API server's, as in "v1.37.1".
func (c *Cluster) ServerVersion(ctx context.Context) (string, error) {
	raw, err := c.typed.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return "", err
	}
	var v version.Info
	if err := json.Unmarshal(raw, &v); err != nil {
		return "", fmt.Errorf("/version: %w", err)
	}
	return v.GitVersion, nil
}

// CRD is one of our CustomResourceDefinitions.
type CRD string

// The ones that there are.
const (
	PolicyCRD  CRD = "maintenancepolicies.lockkeeper.io"
	CephOSDCRD CRD = "cephosds.ceph.elemental.net"
)

// CRD answers whether the API server knows a kind as this program does; the reason says what is missing. found is false
// if it does not know it at all.
func (c *Cluster) CRD(ctx context.Context, name CRD) (found bool, answer storage.Answer, err error) {
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{
		Group: "apiextensions.k8s.io", Version: "v1",
		Kind: "CustomResourceDefinition",
	})
	if err := c.api.Get(ctx, client.ObjectKey{Name: string(name)}, crd); apierrors.IsNotFound(err) {
		return false, storage.Answer{Reason: fmt.Sprintf("CustomResourceDefinition %s is missing", name)}, nil
	} else if err != nil {
		return false, storage.Answer{}, err
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		m, _ := v.(map[string]any)
		if m["name"] != name.version() {
			continue
		}
		if m["served"] != true {
			return true, storage.Answer{Reason: fmt.Sprintf("CustomResourceDefinition %s does not serve its version %s", name,
				name.version())}, nil
		}
		known, _, _ := unstructured.NestedMap(m, "schema", "openAPIV3Schema", "properties")
		if missing := name.missing(known); len(missing) > 0 {
			return true, storage.Answer{
				Reason: fmt.Sprintf("CustomResourceDefinition %s is older than this program: it does not know %s", name,
					strings.Join(missing, ", ")),
			}, nil
		}
		return true, storage.Answer{OK: true}, nil
	}
	return true, storage.Answer{Reason: fmt.Sprintf("CustomResourceDefinition %s has no version %s", name,
		name.version())}, nil
}

func (name CRD) version() string {
	if name == CephOSDCRD {
		return cephv1alpha1.GroupVersion.Version
	}
	return v1alpha1.GroupVersion.Version
}

// missing lists what this program knows and a schema does not.
func (name CRD) missing(known map[string]any) []string {
	if name == CephOSDCRD {
		return append(unknown(known, "spec", reflect.TypeFor[cephv1alpha1.CephOSDSpec]()),
			unknown(known, "status", reflect.TypeFor[cephv1alpha1.CephOSDStatus]())...)
	}
	return append(unknown(known, "spec.ceph", reflect.TypeFor[v1alpha1.CephSpec]()),
		unknown(known, "status", reflect.TypeFor[v1alpha1.MaintenancePolicyStatus]())...)
}

// unknown lists the fields of a type that a schema does not have at a path.
func unknown(properties map[string]any, path string, t reflect.Type) []string {
	for i, name := range strings.Split(path, ".") {
		if i > 0 {
			properties, _, _ = unstructured.NestedMap(properties, "properties")
		}
		properties, _, _ = unstructured.NestedMap(properties, name)
	}
	properties, _, _ = unstructured.NestedMap(properties, "properties")
	var out []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if _, ok := properties[name]; name != "" && !ok {
			out = append(out, path+"."+name)
		}
	}
	return out
}

// Right is something that somebody may have to be allowed to do.
type Right struct {
	Verb, Group, Resource, Subresource, Namespace, Name string
}

func (r Right) String() string {
	what := r.Resource
	if r.Subresource != "" {
		what += "/" + r.Subresource
	}
	if r.Group != "" {
		what += "." + r.Group
	}
	if r.Name != "" {
		what += " " + r.Name
	}
	if r.Namespace != "" {
		what += " in " + r.Namespace
	}
	return r.Verb + " " + what
}

// Account is a service account. The zero Account is whoever asks.
type Account struct{ Namespace, Name string }

// May asks the API server whether an account may do something. To ask for another account takes a right of its own.
func (c *Cluster) May(ctx context.Context, who Account, r Right) (bool, error) {
	attributes := &authorizationv1.ResourceAttributes{
		Verb: r.Verb, Group: r.Group, Resource: r.Resource,
		Subresource: r.Subresource, Namespace: r.Namespace, Name: r.Name,
	}
	if who == (Account{}) {
		review, err := c.typed.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
			&authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes},
			}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return review.Status.Allowed, nil
	}
	review, err := c.typed.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + who.Namespace + ":" + who.Name,
			Groups: []string{
				"system:serviceaccounts", "system:serviceaccounts:" + who.Namespace,
				"system:authenticated",
			},
			ResourceAttributes: attributes,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// ForeignBudget names a budget of somebody else that covers the policy's OSD pods or mon pods, or returns "".
func (c *Cluster) ForeignBudget(ctx context.Context, p *v1alpha1.MaintenancePolicy) (string, error) {
	list, err := c.typed.PolicyV1().PodDisruptionBudgets(p.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	mine := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Labels: map[string]string{LabelPolicy: p.Name}},
	}
	for _, selector := range []*metav1.LabelSelector{OSDSelector(p), MonSelector(p)} {
		if found, _, err := c.conflict(ctx, list.Items, mine, selector); err != nil || found != "" {
			return found, err
		}
	}
	return "", nil
}

// Second answers whether the policy is in charge of its storage cluster; the reason names the one that is.
func (c *Cluster) Second(ctx context.Context, p *v1alpha1.MaintenancePolicy) (storage.Answer, error) {
	all, err := c.MaintenancePolicies(ctx, metav1.NamespaceAll)
	if apierrors.IsForbidden(err) { // whoever asks may look into some namespaces only
		all, err = c.MaintenancePolicies(ctx, p.Namespace)
	}
	if err != nil {
		return storage.Answer{}, err
	}
	answer, _, err := c.precedence(ctx, p, all)
	return answer, err
}

// MonEndpoints answers whether the ConfigMap with the mons' addresses is there, and can be read for what it is.
func (c *Cluster) MonEndpoints(ctx context.Context, p *v1alpha1.MaintenancePolicy) (string, error) {
	at := monEndpoints(p)
	return c.ConfigMapValue(ctx, p.Namespace, at.Name, at.Key)
}

// Credentials names the Secret of the policy's Ceph user.
func Credentials(p *v1alpha1.MaintenancePolicy) string {
	if c := p.Spec.Ceph; c != nil && c.Connection.Credentials.Name != "" {
		return c.Connection.Credentials.Name
	}
	return "rook-ceph-mon"
}

// Endpoints names the ConfigMap with the mons' addresses.
func Endpoints(p *v1alpha1.MaintenancePolicy) string { return monEndpoints(p).Name }
