package machines

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// This file tells as the health checks do whether a node, or its Machine, is unhealthy. nodeStartupTimeout is not
// looked at: a Machine that never had a node hosts nothing.

// remediateMachine is an annotation by which a person has a health check of Cluster API remediate a Machine that looks
// well.
const remediateMachine = "cluster.x-k8s.io/remediate-machine"

// Judge says of a node what a watcher or a job has to know of it: whether its health checks find it unhealthy, and
// whether its Machine is being deleted. machine is nil when it has none; a Node without a name is gone.
func (h *Holder) Judge(
	machine *unstructured.Unstructured, n *corev1.Node, checks []HealthCheck, now time.Time,
) (p fencing.Patient) {
	if machine != nil {
		p.Machine = h.describe(machine)
		if at := machine.GetDeletionTimestamp(); at != nil {
			p.Deleting = at.UTC()
		}
	}
	ofNode, ofMachine, deletes := apply(checks, machine)
	if n.Name == "" {
		if machine != nil { // every health check calls a Machine unhealthy whose node is gone
			p.Unhealthy, p.Condition = now.UTC(), "its Node is deleted"
		}
		return p
	}
	p.Found, p.Ready, p.BootID, p.UID = true, kube.NodeReady(n), n.Status.NodeInfo.BootID, string(n.UID)
	if why := marked(machine); deletes && why != "" {
		p.Unhealthy, p.Condition = now.UTC(), why
		return p
	}
	p.Meets(conditionsOf(n), ofNode, "", now)
	p.Meets(conditionsOfMachine(machine), ofMachine, "Machine: ", now)
	return p
}

// apply collects what the health checks that select a Machine find unhealthy. By one that is paused nobody is fenced,
// for now. deletes: at least one of them is at work, and replaces what it finds unhealthy.
func apply(
	checks []HealthCheck, machine *unstructured.Unstructured,
) (ofNode, ofMachine []fencing.Check, deletes bool) {
	selected := false
	for _, c := range checks {
		if machine == nil || !c.Selects(machine.GetLabels()) {
			continue
		}
		if selected = true; !c.Paused {
			deletes = deletes || !c.Template
			ofNode, ofMachine = append(ofNode, c.Checks...), append(ofMachine, c.MachineChecks...)
		}
	}
	if !selected {
		ofNode = fencing.WithoutCheck
	}
	return ofNode, ofMachine, deletes
}

// marked says for what a health check calls a Machine unhealthy at once, whatever its conditions are; "": for nothing.
// It goes with the Machine. Whoever has the node started again, and keeps the Machine, would never be done.
func marked(machine *unstructured.Unstructured) string {
	if machine == nil {
		return ""
	}
	if _, is := machine.GetAnnotations()[remediateMachine]; is {
		return "annotation " + remediateMachine
	}
	if phase, _, _ := unstructured.NestedString(machine.Object, "status", "phase"); phase == "Failed" {
		return "its Machine has failed"
	}
	return ""
}

func conditionsOf(n *corev1.Node) (out []fencing.Condition) {
	for _, c := range n.Status.Conditions {
		out = append(out, fencing.Condition{
			Type: string(c.Type), Status: string(c.Status), Since: c.LastTransitionTime.UTC(),
		})
	}
	return out
}

// conditionsOfMachine leaves out what has no time.
func conditionsOfMachine(machine *unstructured.Unstructured) (out []fencing.Condition) {
	if machine == nil {
		return nil
	}
	list, _, _ := unstructured.NestedSlice(machine.Object, "status", "conditions")
	for _, item := range list {
		c, _ := item.(map[string]any)
		kind, _ := c["type"].(string)
		status, _ := c["status"].(string)
		text, _ := c["lastTransitionTime"].(string)
		if since, err := time.Parse(time.RFC3339, text); err == nil {
			out = append(out, fencing.Condition{Type: kind, Status: status, Since: since.UTC()})
		}
	}
	return out
}
