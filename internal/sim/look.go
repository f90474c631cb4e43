package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
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

// Budget says what lockkeeper's budget allows: "closed", "only zone [x] is open", "at rest, 5 must stay", or "none".
func (w *World) Budget() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b := w.budgets["lockkeeper"]; b != nil {
		return describe(b.spec)
	}
	return "none"
}

// Memory is what the policy's status remembers.
func (w *World) Memory() activities.Memory {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.memory
}

// Report is the last report that was written.
func (w *World) Report() activities.Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.report
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

// Evicted tells whether no OSD runs on a node.
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

// Nodes are the names of all nodes.
func (w *World) Nodes() []string { return sortedKeys(w.nodes) }

// Leftovers is what lockkeeper has changed and not changed back.
func (w *World) Leftovers() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, host := range sortedKeys(w.noout) {
		if w.noout[host] == byUs {
			out = append(out, "noout on "+host)
		}
	}
	for _, name := range sortedKeys(w.nodes) {
		if n := w.nodes[name]; n.cordoned && !n.gone && n.cordonedBy == byUs {
			out = append(out, name+" is cordoned")
		}
	}
	for _, c := range w.memory.Lease.Holders {
		out = append(out, c.WorkflowID+" holds the lease")
	}
	for _, c := range w.memory.Lease.Queue {
		out = append(out, c.WorkflowID+" waits for the lease")
	}
	for _, n := range w.memory.Noout {
		if !n.Withdrawn {
			out = append(out, "a record of noout on "+n.Host)
		}
	}
	switch b := w.budgets["lockkeeper"]; {
	case w.policy == nil && b != nil:
		out = append(out, "a budget without a policy")
	case w.policy == nil:
	case b == nil:
		out = append(out, "no budget")
	case len(b.spec.Except) > 0 || b.spec.MinAvailable >= budget.Everything:
		out = append(out, fmt.Sprintf("the budget: %s (%s)", describe(b.spec), w.report.Decision.Message))
	}
	return out
}

// Snapshot is what a watcher of Kubernetes sees.
func (w *World) Snapshot() (s starter.Snapshot, exists bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.policy == nil {
		return s, false
	}
	s = starter.Snapshot{
		Generation: w.policy.Generation, Deleting: w.policy.DeletionTimestamp != nil,
		OSDs: map[string]starter.OSD{}, Nodes: map[string]starter.Node{}, Budgets: map[string]starter.Budget{}, Daemons: map[string]starter.Daemon{},
	}
	for _, o := range w.osds {
		x := starter.OSD{Node: o.host, Pod: storage.PodNone}
		for _, state := range []storage.PodState{storage.PodReady, storage.PodNotReady, storage.PodPending, storage.PodTerminating} {
			if slices.ContainsFunc(w.pods, func(p *pod) bool { return p.osd == o.id && p.state == state }) {
				x.Pod = state
				break
			}
		}
		s.OSDs[fmt.Sprintf("osd.%d", o.id)] = x
	}
	for name, n := range w.nodes {
		if x := (starter.Node{Cordoned: n.cordoned && !n.gone, Tainted: n.tainted, Gone: n.gone, NotReady: !n.ready && !n.gone}); x != (starter.Node{}) {
			s.Nodes[name] = x
		}
	}
	for name, b := range w.budgets {
		s.Budgets[name] = starter.Budget{Spec: describe(b.spec), Writer: "lockkeeper", Daemon: map[bool]string{true: "osd"}[name == "lockkeeper"], Ours: name == "lockkeeper"}
	}
	return s, true
}
