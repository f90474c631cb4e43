package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/starter"
)

// This file is how tests look at the World.

// Await waits until cond holds, at most for the given time, and tells whether it does. It looks often.
func (w *World) Await(within time.Duration, cond func() bool) bool {
	const often = 20 * time.Millisecond
	for end := time.Now().Add(within); ; time.Sleep(often) {
		if cond() {
			return true
		}
		if time.Now().After(end) || w.end.Err() != nil {
			return false
		}
	}
}

// Budget says what lockkeeper's budget of the OSDs allows: "closed", "only zone [zone-x] is open", "at rest, 5 must
// stay", or "none".
func (w *World) Budget() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.describeOSDs()
}

// Status is the policy's.
func (w *World) Status() (s v1alpha1.MaintenancePolicyStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.policy != nil {
		w.policy.Status.DeepCopyInto(&s)
	}
	return s
}

// PolicyVersion is another one after every write of the policy.
func (w *World) PolicyVersion() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.policy == nil {
		return ""
	}
	return w.policy.ResourceVersion
}

// Memory is what the policy's status remembers.
func (w *World) Memory() activities.Memory {
	p, err := kube.NewFor(server{World: w, user: byPerson}, policyClient{World: w, user: byPerson}).Policy(
		context.Background(), w.key)
	if err != nil {
		return activities.Memory{}
	}
	return p.Memory
}

// Noout says who set noout on a host; "" for nobody.
func (w *World) Noout(host string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.noout[host])
}

// Cordoned tells whether a node is.
func (w *World) Cordoned(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[name].cordoned
}

// Evicted tells whether no daemon runs on a node.
func (w *World) Evicted(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !slices.ContainsFunc(w.pods, func(p *pod) bool { return p.node == name && p.bound })
}

// Clean is the truth about the data.
func (w *World) Clean() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clean()
}

// NoWayBack tells whether the data waits for an OSD whose disk is good, and whose node takes no pod.
func (w *World) NoWayBack() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.clean() && slices.ContainsFunc(w.osds, func(o *osd) bool {
		return !o.up && !o.dead && !w.nodes[o.host].schedulable()
	})
}

// Slipped tells whether a pod that was not ready ever went by a budget that was met without it. Another pod may have
// gone at that moment, by what the budget let go: two failure domains were hurt then, and no order of writes is safe
// from it.
func (w *World) Slipped() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.slipped
}

// Whole says what is not as it should be in the end: daemons that are down, data with copies missing, cordons.
func (w *World) Whole() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, o := range w.osds {
		if !o.up || !o.in || o.hung {
			out = append(out, o.name()+" is away")
		}
	}
	for _, m := range w.mons {
		if !m.in || !m.running {
			out = append(out, "mon."+m.name+" is away")
		}
	}
	if !w.manager.alive {
		out = append(out, "the manager is away")
	}
	if !w.clean() {
		out = append(out, "the data is not whole")
	}
	for _, name := range w.names {
		if n := w.nodes[name]; !n.schedulable() {
			out = append(out, name+" is not in service")
		}
	}
	for _, host := range slices.Sorted(maps.Keys(w.noout)) {
		out = append(out, "noout on "+host)
	}
	return out
}

// Nodes are the names of all nodes.
func (w *World) Nodes() []string { return slices.Clone(w.names) }

// Daemons are the names of all daemons: osd.0, mon.a, mgr.a.
func (w *World) Daemons() []string {
	var out []string
	for _, d := range w.workloads {
		out = append(out, d.daemon())
	}
	return out
}

// OSDsOn are the OSDs that belong to a node.
func (w *World) OSDsOn(node string) []string {
	var out []string
	for _, d := range w.workloads {
		if d.kind == "osd" && d.pinned == node {
			out = append(out, d.daemon())
		}
	}
	return out
}

// Managed tells whether the policy wants budgets.
func (w *World) Managed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.policy != nil && kube.Settings(&w.policy.Spec).ManagePodBudgets
}

// PolicyExists tells whether the policy does.
func (w *World) PolicyExists() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.policy != nil
}

// Leftovers is what lockkeeper has changed and not changed back.
func (w *World) Leftovers() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, host := range slices.Sorted(maps.Keys(w.noout)) {
		if w.noout[host] == byUs {
			out = append(out, "noout on "+host)
		}
	}
	for _, name := range w.names {
		if n := w.nodes[name]; n.cordoned && !n.gone && n.cordonedBy == byUs {
			out = append(out, name+" is cordoned")
		}
	}
	if w.policy == nil {
		for _, name := range slices.Sorted(maps.Keys(w.budgets)) {
			if w.budgets[name].Labels[kube.LabelManagedBy] == kube.FieldOwner {
				out = append(out, "a budget without a policy: "+name)
			}
		}
		return out
	}
	s := &w.policy.Status
	for _, c := range s.Lease.Holders {
		out = append(out, c.WorkflowID+" holds the lease")
	}
	for _, c := range s.Lease.Queue {
		out = append(out, c.WorkflowID+" waits for the lease")
	}
	for _, n := range s.Noout {
		if !n.Withdrawn {
			out = append(out, "a record of noout on "+n.Host)
		}
	}
	if b := w.daemonBudget(); !writer(b).ours() || !w.atRest() {
		out = append(out, fmt.Sprintf("the budget: %s (%s)", w.describeOSDs(), s.Message))
	}
	out = append(out, w.unmarked()...)
	return out
}

// Budgets are those that there are, as a watcher of Kubernetes sees them.
func (w *World) Budgets() []policyv1.PodDisruptionBudget {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.budgetObjects()
}

func (w *World) budgetObjects() (out []policyv1.PodDisruptionBudget) {
	for _, name := range slices.Sorted(maps.Keys(w.budgets)) {
		out = append(out, policyv1.PodDisruptionBudget{ObjectMeta: w.budgets[name].ObjectMeta, Spec: w.budgets[name].Spec})
	}
	return out
}

// Snapshot is what a watcher of Kubernetes sees, as the watcher itself takes it.
func (w *World) Snapshot(before *starter.Snapshot) (s starter.Snapshot, exists bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.policy == nil {
		return s, false
	}
	o := starter.Objects{
		Policy: w.policy, Policies: w.policies(), Nodes: make([]corev1.Node, 0, len(w.names)),
		Pods: make([]corev1.Pod, 0, len(w.pods)), Deployments: make([]appsv1.Deployment, 0, len(w.workloads)),
	}
	for _, name := range w.names {
		if n := w.nodes[name]; !n.gone {
			o.Nodes = append(o.Nodes, n.object())
		}
	}
	for _, p := range w.pods {
		o.Pods = append(o.Pods, p.shared())
	}
	for _, d := range w.workloads {
		if !d.bare {
			o.Deployments = append(o.Deployments, d.object())
		}
	}
	o.Budgets = w.budgetObjects()
	return starter.Take(o, before), true
}

// Up is how many OSDs Ceph has up.
func (w *World) Up() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, o := range w.osds {
		if o.up {
			n++
		}
	}
	return n
}

// PodState is how a daemon's pod is.
func (w *World) PodState(daemon string) storage.PodState {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.podOf(w.find(daemon)); p != nil {
		return p.state
	}
	return storage.PodNone
}
