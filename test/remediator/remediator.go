// Package remediator fences nodes as those controllers do that do not run in the lab: OpenShift's health check of 2019,
// which asks MachineDisruptionBudgets; its present one, which deletes Machines whose hooks then hold; and the
// NodeHealthCheck of medik8s. What they do is imitated from what is written of them, with the waits as fields, and
// shares no code with lockkeeper, which has to hold them back.
package remediator

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Remediator fences the nodes that its API lets it fence.
type Remediator struct {
	Client client.Client
	API    API
	// Namespace is that of the Machines; NodeHealthChecks have none.
	Namespace string
	// Every is how long it waits between two looks.
	Every time.Duration
	// Fence ends whatever runs on a node. gone: the machine goes for good, and its node with it. Otherwise it is started
	// again.
	Fence func(ctx context.Context, node string, gone bool) error
	// FirstWaits: of a MachineDisruptionBudget no machine goes unless more are healthy than have to be. Both arithmetics
	// were published: by the other one, that of the seed's flows, one goes while as many are healthy as have to be.
	FirstWaits atomic.Bool
	// Said is what went wrong in a look, which the next one tries again.
	Said func(error)

	starting map[string]bool // nodes of metal that are not healthy yet

	mu     sync.Mutex
	fenced []string
}

// API is one of those that are imitated.
type API string

// The APIs.
const (
	Budgets     API = "MachineDisruptionBudget"
	OpenShift   API = "OpenShift"
	NodeHealths API = "NodeHealthCheck"
)

// Run looks again and again until ctx ends.
func (r *Remediator) Run(ctx context.Context) {
	for ; ctx.Err() == nil; pause(ctx, r.Every) {
		if err := r.Look(ctx); err != nil && ctx.Err() == nil && r.Said != nil {
			r.Said(err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Look does once what there is to do.
func (r *Remediator) Look(ctx context.Context) error {
	switch r.API {
	case Budgets:
		return r.lookAtBudgets(ctx)
	case OpenShift:
		return r.lookAtMachines(ctx)
	case NodeHealths:
		return r.lookAtNodes(ctx)
	}
	return fmt.Errorf("API %q: allowed are %s, %s and %s", r.API, Budgets, OpenShift, NodeHealths)
}

// Fenced are the nodes that were fenced, in order.
func (r *Remediator) Fenced() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.fenced)
}

// fence carries out what it has begun, even if the remediator is stopped meanwhile: a machine that was only ended, and
// not started again, would be missing for whoever comes next.
func (r *Remediator) fence(ctx context.Context, node string, gone bool) error {
	r.mu.Lock()
	r.fenced = append(r.fenced, node)
	r.mu.Unlock()
	return r.Fence(context.WithoutCancel(ctx), node, gone)
}

// condition is one of a health check's: a node that has been so for that long is unhealthy.
type condition struct {
	kind, status string
	within       time.Duration
}

// conditions reads unhealthyConditions, whose wait is named timeout or duration.
func conditions(check *unstructured.Unstructured, wait string) (out []condition, err error) {
	list, _, err := unstructured.NestedSlice(check.Object, "spec", "unhealthyConditions")
	for _, x := range list {
		fields, _ := x.(map[string]any)
		text, _, _ := unstructured.NestedString(fields, wait)
		within, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", wait, text, err)
		}
		kind, _, _ := unstructured.NestedString(fields, "type")
		status, _, _ := unstructured.NestedString(fields, "status")
		out = append(out, condition{kind, status, within})
	}
	return out, err
}

// unhealthy tells whether a node meets one of the conditions for as long as that wants. A node that is gone is
// unhealthy.
func unhealthy(n *corev1.Node, all []condition, now time.Time) bool {
	if n == nil {
		return true
	}
	return slices.ContainsFunc(n.Status.Conditions, func(is corev1.NodeCondition) bool {
		return slices.ContainsFunc(all, func(c condition) bool {
			return string(is.Type) == c.kind && string(is.Status) == c.status && !now.Before(is.LastTransitionTime.Add(c.within))
		})
	})
}

func ready(n *corev1.Node) bool {
	return n != nil && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// scaled is a number, or a percentage of a total, which is rounded down, or up for what is the least. none stands for a
// field that is missing.
func scaled(o *unstructured.Unstructured, field, none string, total int, up bool) (int, error) {
	text := none
	if v, found, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", field); found {
		text = fmt.Sprint(v)
	}
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(number)
	if err != nil {
		return 0, fmt.Errorf("spec.%s %q: must be a number or a percentage", field, text)
	}
	switch {
	case percent && up:
		return (n*total + 99) / 100, nil
	case percent:
		return n * total / 100, nil
	}
	return n, nil
}

// list lists objects of a kind: "machine.openshift.io/v1beta1", "Machine".
func (r *Remediator) list(ctx context.Context, version, kind string) ([]unstructured.Unstructured, error) {
	l := &unstructured.UnstructuredList{}
	l.SetAPIVersion(version)
	l.SetKind(kind + "List")
	var in []client.ListOption
	if r.Namespace != "" {
		in = append(in, client.InNamespace(r.Namespace))
	}
	err := r.Client.List(ctx, l, in...)
	return l.Items, err
}

func (r *Remediator) nodes(ctx context.Context) (map[string]*corev1.Node, error) {
	var l corev1.NodeList
	if err := r.Client.List(ctx, &l); err != nil {
		return nil, err
	}
	byName := map[string]*corev1.Node{}
	for i := range l.Items {
		byName[l.Items[i].Name] = &l.Items[i]
	}
	return byName, nil
}

// selector is that of a health check or of a budget. One that is empty selects all.
func selector(o *unstructured.Unstructured) (labels.Selector, error) {
	var s metav1.LabelSelector
	fields, _, err := unstructured.NestedMap(o.Object, "spec", "selector")
	if err == nil && fields != nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &s)
	}
	if err != nil {
		return nil, err
	}
	return metav1.LabelSelectorAsSelector(&s)
}

// selected are those objects that a health check or a budget is about.
func selected(by *unstructured.Unstructured, all []unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	s, err := selector(by)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", by.GetKind(), by.GetName(), err)
	}
	var out []*unstructured.Unstructured
	for i := range all {
		if s.Matches(labels.Set(all[i].GetLabels())) {
			out = append(out, &all[i])
		}
	}
	return out, nil
}

func nodeOf(machine *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(machine.Object, "status", "nodeRef", "name")
	return name
}
