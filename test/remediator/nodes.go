package remediator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// This file is medik8s': a NodeHealthCheck asks for the remediation of a node by an object of the node's name, made
// from a template, and whoever carries it out starts the node again. The request goes when the node is healthy.

const (
	nodeHealthAPI = "remediation.medik8s.io/v1alpha1"
	excluded      = "remediation.medik8s.io/exclude-from-remediation"
)

func (r *Remediator) lookAtNodes(ctx context.Context) error {
	checks, err := r.list(ctx, nodeHealthAPI, "NodeHealthCheck")
	if err != nil {
		return err
	}
	nodes, err := r.nodes(ctx)
	if err != nil {
		return err
	}
	var failed error
	for i := range checks {
		failed = errors.Join(failed, r.checkNodes(ctx, &checks[i], nodes))
	}
	return failed
}

// checkNodes counts nodes that are excluded as any other, and asks for the remediation of none of them.
func (r *Remediator) checkNodes(
	ctx context.Context, check *unstructured.Unstructured, nodes map[string]*corev1.Node,
) error {
	all, err := conditions(check, "duration")
	if err != nil {
		return err
	}
	s, err := selector(check)
	if err != nil {
		return err
	}
	total, bad := 0, map[string]bool{}
	for name, n := range nodes {
		if s.Matches(labels.Set(n.Labels)) {
			total++
			bad[name] = unhealthy(n, all, time.Now())
		}
	}
	healthy := total
	for _, is := range bad {
		if is {
			healthy--
		}
	}
	least, err := scaled(check, "minHealthy", "51%", total, true)
	if err != nil {
		return err
	}
	paused, _, _ := unstructured.NestedSlice(check.Object, "spec", "pauseRequests")
	mayBegin := len(paused) == 0 && healthy >= least
	var failed error
	for name, is := range bad {
		failed = errors.Join(failed, r.remediateNode(ctx, check, nodes[name], is, mayBegin))
	}
	return failed
}

// remediateNode makes, carries out or takes away the request for one node. One that was made is carried out whatever
// becomes of the health check.
func (r *Remediator) remediateNode(
	ctx context.Context, check *unstructured.Unstructured, n *corev1.Node, bad, mayBegin bool,
) error {
	request, err := requestOf(check, n.Name)
	if err != nil {
		return err
	}
	err = r.Client.Get(ctx, client.ObjectKeyFromObject(request), request)
	switch {
	case apierrors.IsNotFound(err) && bad && mayBegin && n.Labels[excluded] == "":
		if err := r.Client.Create(ctx, request); err != nil {
			return err
		}
		return r.fence(ctx, n.Name, false)
	case apierrors.IsNotFound(err):
		return nil
	case err == nil && !bad:
		return client.IgnoreNotFound(r.Client.Delete(ctx, request))
	}
	return err
}

// requestOf is an object of the template's kind without "Template", in the template's namespace.
func requestOf(check *unstructured.Unstructured, node string) (*unstructured.Unstructured, error) {
	template, _, err := unstructured.NestedStringMap(check.Object, "spec", "remediationTemplate")
	kind, is := strings.CutSuffix(template["kind"], "Template")
	if err != nil || !is {
		return nil, fmt.Errorf("NodeHealthCheck %s: spec.remediationTemplate.kind %q: must end with Template",
			check.GetName(), template["kind"])
	}
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(template["apiVersion"])
	o.SetKind(kind)
	o.SetNamespace(template["namespace"])
	o.SetName(node)
	return o, nil
}
