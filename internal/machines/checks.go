package machines

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
)

// HealthCheck is what finds a node unhealthy, and then fences it.
type HealthCheck struct {
	Name   string
	Checks []fencing.Check
	// MachineChecks are about conditions of the Machine, and not of its node.
	MachineChecks []fencing.Check
	// Limit is up to how many unhealthy Machines it acts: a number, a percentage or a range; "": any number.
	Limit string
	// Least is how many have to be healthy for it to act, a number or a percentage; "": it does not ask.
	Least string
	// Template: it makes a remediation request, or has metal started again, and deletes no Machine, so that hooks do not
	// hold.
	Template bool
	// Paused: it does nothing.
	Paused   bool
	selector labels.Selector
}

// Selects tells whether it is about a Machine, or a Node, with such labels.
func (c HealthCheck) Selects(of map[string]string) bool { return c.selector.Matches(labels.Set(of)) }

// Acts is on how many of which Machines it acts, and how, in words that change with that.
func (c HealthCheck) Acts() string {
	return fmt.Sprintf("%s: limit %q, least %q, template %t, paused %t", c.selector, c.Limit, c.Least, c.Template,
		c.Paused)
}

func (h *Holder) checkVersions() []string {
	if h.kind.versionsOfChecks != nil {
		return h.kind.versionsOfChecks
	}
	return h.kind.versions
}

// HealthChecks lists those of the API. One that cannot be read is an error: it may select anybody.
func (h *Holder) HealthChecks(ctx context.Context) ([]HealthCheck, error) {
	k, err := h.served(h.kind.check, h.checkVersions())
	if err != nil {
		return nil, err
	}
	items, err := h.list(ctx, k)
	if err != nil {
		return nil, err
	}
	var checks []HealthCheck
	for i := range items {
		c, err := readCheck(&items[i])
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", k.Kind, items[i].GetName(), err)
		}
		checks = append(checks, c)
	}
	return checks, nil
}

// pausedAnnotation is that of Cluster API, which OpenShift's health checks know, too.
const pausedAnnotation = "cluster.x-k8s.io/paused"

// OpenShift's health checks with this annotation have machines of metal started again in place of deleting them.
const (
	remediationStrategy = "machine.openshift.io/remediation-strategy"
	startsMetalAgain    = "external-baremetal"
)

// readCheck knows the shapes of all APIs and versions: none uses a field of another for something else.
func readCheck(o *unstructured.Unstructured) (HealthCheck, error) {
	c := HealthCheck{Name: o.GetName()}
	_, c.Paused = o.GetAnnotations()[pausedAnnotation]
	c.Template = o.GetAnnotations()[remediationStrategy] == startsMetalAgain
	requests, _, _ := unstructured.NestedSlice(o.Object, "spec", "pauseRequests")
	c.Paused = c.Paused || len(requests) > 0
	var selector metav1.LabelSelector
	if s, ok, err := unstructured.NestedMap(o.Object, "spec", "selector"); err != nil {
		return c, fmt.Errorf("spec.selector: %w", err)
	} else if ok {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(s, &selector); err != nil {
			return c, fmt.Errorf("spec.selector: %w", err)
		}
	}
	var err error
	if c.selector, err = metav1.LabelSelectorAsSelector(&selector); err != nil {
		return c, fmt.Errorf("spec.selector: %w", err)
	}
	c.Limit = first(o, []string{"spec", "maxUnhealthy"}, []string{"spec", "unhealthyRange"},
		[]string{"spec", "remediation", "triggerIf", "unhealthyLessThanOrEqualTo"},
		[]string{"spec", "remediation", "triggerIf", "unhealthyInRange"})
	for _, path := range [][]string{{"spec", "remediationTemplate"}, {"spec", "remediation", "templateRef"}} {
		template, _, _ := unstructured.NestedMap(o.Object, path...)
		c.Template = c.Template || len(template) > 0
	}
	c.Least = first(o, []string{"spec", "minHealthy"})
	for _, path := range [][]string{{"spec", "unhealthyConditions"}, {"spec", "checks", "unhealthyNodeConditions"}} {
		if c.Checks, err = readConditions(c.Checks, o, path); err != nil {
			return c, err
		}
	}
	c.MachineChecks, err = readConditions(nil, o, []string{"spec", "checks", "unhealthyMachineConditions"})
	return c, err
}

// readConditions appends those of a list, which need not be there.
func readConditions(to []fencing.Check, o *unstructured.Unstructured, path []string) ([]fencing.Check, error) {
	list, _, err := unstructured.NestedSlice(o.Object, path...)
	if err != nil {
		return nil, err
	}
	for _, item := range list {
		check, err := readCondition(item)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path[len(path)-1], err)
		}
		to = append(to, check)
	}
	return to, nil
}

// first is the first field that is there, a number or a text.
func first(o *unstructured.Unstructured, paths ...[]string) string {
	for _, path := range paths {
		if v, ok, err := unstructured.NestedFieldNoCopy(o.Object, path...); ok && err == nil && v != "" {
			return fmt.Sprint(v)
		}
	}
	return ""
}

// readCondition reads a condition whose timeout is a number of seconds (timeoutSeconds) or a duration (timeout;
// duration of a NodeHealthCheck).
func readCondition(item any) (fencing.Check, error) {
	m, ok := item.(map[string]any)
	if !ok {
		return fencing.Check{}, fmt.Errorf("%v is no condition", item)
	}
	check := fencing.Check{}
	check.Type, _ = m["type"].(string)
	check.Status, _ = m["status"].(string)
	if seconds, ok := m["timeoutSeconds"].(int64); ok {
		check.Timeout = time.Duration(seconds) * time.Second
		return check, nil
	}
	for _, field := range []string{"timeout", "duration"} {
		if text, ok := m[field].(string); ok {
			d, err := time.ParseDuration(text)
			if err != nil {
				return check, fmt.Errorf("%s %q: must be a duration such as 300s", field, text)
			}
			check.Timeout = d
		}
	}
	return check, nil
}
