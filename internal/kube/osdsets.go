package kube

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
)

// This file reads what a rollout, and a plan of one, is made of.

// CephOSD reads a CephOSD, or returns activities.ErrNotFound. It reads it as people wrote it: that is what its
// template's hash is over.
func (c *Cluster) CephOSD(ctx context.Context, namespace, name string) (podspec.Set, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(cephv1alpha1.GroupVersion.WithKind(cephv1alpha1.Kind))
	err := c.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, u)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return podspec.Set{}, fmt.Errorf("CephOSD %s/%s: %w", namespace, name, activities.ErrNotFound)
	case err != nil:
		return podspec.Set{}, err
	}
	return podspec.Read(u.Object)
}

// CephOSDs lists those of a namespace, or, with "", of all. Where the API server does not know the kind there are none.
func (c *Cluster) CephOSDs(ctx context.Context, namespace string) ([]cephv1alpha1.CephOSD, error) {
	var list cephv1alpha1.CephOSDList
	if err := c.api.List(ctx, &list, client.InNamespace(namespace)); err != nil && !meta.IsNoMatchError(err) {
		return nil, err
	}
	return list.Items, nil
}

// CephOSDPods lists the pods with the owner label of a CephOSD.
func (c *Cluster) CephOSDPods(ctx context.Context, namespace, name string) ([]*corev1.Pod, error) {
	return CephOSDPods(ctx, c.typed, namespace, name)
}

// CephOSDPods lists the pods with the owner label of a CephOSD.
func CephOSDPods(ctx context.Context, typed kubernetes.Interface, namespace, name string) ([]*corev1.Pod, error) {
	list, err := typed.CoreV1().Pods(namespace).List(ctx,
		metav1.ListOptions{LabelSelector: podspec.OwnerLabel + "=" + podspec.Owner(name)})
	if err != nil {
		return nil, err
	}
	out := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}

// Deployments lists those of a namespace that a selector selects.
func (c *Cluster) Deployments(ctx context.Context, namespace, selector string) ([]appsv1.Deployment, error) {
	list, err := c.typed.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Hosts says of every node, by its hostname, why its OSDs may not serve; "" if it is in service.
func (c *Cluster) Hosts(ctx context.Context) (map[string]string, error) {
	return Hosts(ctx, c.typed)
}

// Hosts says of every node, by its hostname, why its OSDs may not serve; "" if it is in service.
func Hosts(ctx context.Context, typed kubernetes.Interface) (map[string]string, error) {
	list, err := typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i := range list.Items {
		n := &list.Items[i]
		host := n.Labels[corev1.LabelHostname]
		if host == "" {
			host = n.Name
		}
		out[host] = away(n)
	}
	return out, nil
}

// OutOfService says of every node, by its name, why a pod that is made now may not come up there; "" if it is in
// service.
func OutOfService(nodes []corev1.Node) map[string]string {
	out := map[string]string{}
	for i := range nodes {
		out[nodes[i].Name] = away(&nodes[i])
	}
	return out
}

func away(n *corev1.Node) string {
	switch taint := RemovalTaint(n, time.Now()); {
	case n.Spec.Unschedulable:
		return "node " + n.Name + " is cordoned"
	case taint != "":
		return "node " + n.Name + " is tainted " + taint
	case !NodeReady(n):
		return "node " + n.Name + " is not ready"
	}
	return ""
}

// OSDOf is the number of the OSD that a Deployment runs; or wrong says why it cannot be restarted.
func OSDOf(d *appsv1.Deployment, p *v1alpha1.MaintenancePolicy) (id int, wrong string) {
	label := IDLabel(p)
	id, err := strconv.Atoi(d.Spec.Template.Labels[label])
	switch {
	case err != nil:
		return 0, fmt.Sprintf("must select OSDs only: Deployment %s has no pods with the label %s", d.Name, label)
	case d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType:
		return id, fmt.Sprintf("must select Deployments with the strategy Recreate: %s has %s, which would start a second "+
			"daemon on its device", d.Name, d.Spec.Strategy.Type)
	case d.Spec.Paused:
		// It would do nothing about its template, and its OSD would be waited for as one that does not come back.
		return id, fmt.Sprintf("must select Deployments that are not paused: %s is; `kubectl rollout resume deployment %s`",
			d.Name, d.Name)
	}
	return id, ""
}

// OSDAvailable tells whether what the Deployment of an OSD asks for runs and is ready, and nothing else.
func OSDAvailable(d *appsv1.Deployment) bool {
	s := d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == 1 && s.AvailableReplicas == 1 && s.Replicas == 1
}

// DaemonContainer is the container of a pod that runs the OSD or the mon: the one that Rook calls "osd" or "mon", or
// the first; nil: there is none.
func DaemonContainer(spec *corev1.PodSpec) *corev1.Container {
	if len(spec.Containers) == 0 {
		return nil
	}
	i := slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == "osd" || c.Name == "mon" })
	return &spec.Containers[max(i, 0)]
}

// DaemonImage is the image of that container.
func DaemonImage(spec *corev1.PodSpec) string {
	if c := DaemonContainer(spec); c != nil {
		return c.Image
	}
	return ""
}
