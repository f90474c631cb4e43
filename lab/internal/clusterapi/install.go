package clusterapi

import (
	"context"
	"fmt"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/manifest"
)

// This file applies what Cluster API ships, and the kinds of the provider. Two things differ from an installation in a
// cluster with pods: webhooks are called by URL, since nothing routes to Services; and nobody has to sign certificates.

const fieldOwner = manifest.FieldOwner

var (
	crds = schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	mutating   = schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations",
	}
	validating = schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations",
	}
)

// install applies CRDs first and webhooks last, and returns when every kind is served.
func (c *ClusterAPI) install(ctx context.Context) error {
	shipped, err := manifest.ReadFolder(manifests(c.Bin))
	if err != nil {
		return err
	}
	shipped = append(shipped, providerKinds()...)
	ca, err := os.ReadFile(c.Path("pki", "ca.crt"))
	if err != nil {
		return err
	}
	for _, object := range shipped {
		switch object.GetKind() {
		case "CustomResourceDefinition":
			c.completeKind(object, ca)
			err = c.apply(ctx, crds, object)
		case "MutatingWebhookConfiguration":
			err = c.applyWebhooks(ctx, mutating, object, ca)
		case "ValidatingWebhookConfiguration":
			err = c.applyWebhooks(ctx, validating, object, ca)
		default:
			err = fmt.Errorf("unexpected kind %s", object.GetKind())
		}
		if err != nil {
			return err
		}
	}
	return manifest.AwaitKinds(ctx, c.client)
}

// completeKind adds to a CRD what an installation adds: which versions follow which contract, without which Cluster API
// looks for none of its kinds, and the conversion between versions.
func (c *ClusterAPI) completeKind(crd *unstructured.Unstructured, ca []byte) {
	labels := crd.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	if group == infrastructure {
		labels[coreGroup+"/v1beta2"] = infrastructureVersion
		crd.SetLabels(labels)
		return
	}
	for _, version := range []string{"v1beta1", "v1beta2"} {
		labels[coreGroup+"/"+version] = version
	}
	crd.SetLabels(labels)
	crd.Object["spec"].(map[string]any)["conversion"] = map[string]any{
		"strategy": "Webhook",
		"webhook": map[string]any{
			"conversionReviewVersions": []any{"v1"}, "clientConfig": c.clientConfig("/convert", ca),
		},
	}
}

func (c *ClusterAPI) clientConfig(path string, ca []byte) map[string]any {
	return map[string]any{
		"url": "https://" + instance.Loopback(c.Ports.ClusterAPIWebhook()) + path, "caBundle": ca64(ca),
	}
}

// applyWebhooks has the API server call the manager's webhooks by URL.
func (c *ClusterAPI) applyWebhooks(
	ctx context.Context, resource schema.GroupVersionResource, object *unstructured.Unstructured, ca []byte,
) error {
	object.SetName("cluster-api-" + strings.TrimSuffix(object.GetName(), "-webhook-configuration"))
	hooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
	if err != nil {
		return err
	}
	for _, h := range hooks {
		hook := h.(map[string]any)
		path, _, err := unstructured.NestedString(hook, "clientConfig", "service", "path")
		if err != nil {
			return err
		}
		hook["clientConfig"] = c.clientConfig(path, ca)
	}
	object.Object["webhooks"] = hooks
	return c.apply(ctx, resource, object)
}

// apply creates an object, or makes it what it should be.
func (c *ClusterAPI) apply(ctx context.Context, r schema.GroupVersionResource, o *unstructured.Unstructured) error {
	var err error
	options := metav1.ApplyOptions{FieldManager: fieldOwner, Force: true}
	if o.GetNamespace() == "" {
		_, err = c.client.Resource(r).Apply(ctx, o.GetName(), o, options)
	} else {
		_, err = c.client.Resource(r).Namespace(o.GetNamespace()).Apply(ctx, o.GetName(), o, options)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}
