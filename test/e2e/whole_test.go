package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// whole checks what every scenario must leave behind: all nodes in service, all OSDs up and in, all PGs clean, no
// noout, one budget at rest, no lease, no job, a watcher that no kubelet would have killed; and a writer that saw no
// failed and no lost write. Where OSDs were replaced, never those of two zones at once.
func (w *world) whole() error {
	pause := pauses()
	for deadline := time.Now().Add(90 * time.Second); ; pause() {
		err := w.notWhole()
		if err == nil && w.ofCephOSD() {
			return w.oneZoneAtATime()
		}
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func (w *world) notWhole() error {
	for _, check := range []func() error{
		w.checkPolicy, w.checkNodes, w.checkCeph, w.checkBudgets,
		w.checkJobs, w.checkLoad, w.checkWatcher,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) read(into any, name string, args ...string) error {
	out, err := w.command(name, args...).Output()
	if err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("%s %s: %w in %q", name, strings.Join(args, " "), err, out)
	}
	return nil
}

func (w *world) checkPolicy() error {
	s, err := w.policyStatus()
	switch {
	case err != nil:
		return err
	case s.MayDrain != "any node":
		return fmt.Errorf("policy: may drain %q: %s", s.MayDrain, s.Message)
	case len(s.Lease.Holders)+len(s.Lease.Queue) > 0:
		return fmt.Errorf("policy: lease is left: %+v", s.Lease)
	case len(s.Noout) > 0:
		return fmt.Errorf("policy: noout is left: %+v", s.Noout)
	}
	return nil
}

func (w *world) checkNodes() error {
	var nodes struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct {
				Unschedulable bool
				Taints        []struct{ Key string }
			}
		}
	}
	if err := w.get(&nodes, corePath+"/nodes"); err != nil {
		return err
	}
	for _, n := range nodes.Items {
		if n.Spec.Unschedulable || len(n.Spec.Taints) > 0 {
			return fmt.Errorf("node %s: cordon or taints are left: %+v", n.Metadata.Name, n.Spec)
		}
	}
	return nil
}

func (w *world) checkCeph() error {
	var dump struct {
		OSDs []struct {
			OSD, Up, In int
			State       []string
		} `json:"osds"`
		Flags map[string][]string `json:"crush_node_flags"`
	}
	if err := w.ask(&dump, "osd dump"); err != nil {
		return err
	}
	if len(dump.Flags) > 0 {
		return fmt.Errorf("ceph: flags are left: %v", dump.Flags)
	}
	for _, o := range dump.OSDs {
		if o.Up != 1 || o.In != 1 {
			return fmt.Errorf("ceph: osd.%d: up %d, in %d", o.OSD, o.Up, o.In)
		}
		if slices.Contains(o.State, "noout") {
			return fmt.Errorf("ceph: osd.%d: noout is left", o.OSD)
		}
	}
	states, err := w.pgStates()
	for _, s := range states {
		if !strings.HasPrefix(s, "active+clean") {
			return fmt.Errorf("ceph: PGs are %s", s)
		}
	}
	return err
}

// pgStates are those that placement groups are in: "active+clean".
func (w *world) pgStates() (states []string, err error) {
	var status struct {
		PGMap struct {
			States []struct {
				Name string `json:"state_name"`
			} `json:"pgs_by_state"`
		}
	}
	err = w.ask(&status, "status")
	for _, s := range status.PGMap.States {
		states = append(states, s.Name)
	}
	return states, err
}

func (w *world) checkBudgets() error {
	budgets, err := w.budgets()
	if err != nil {
		return err
	}
	if says := allowed(budgets); says != "one anywhere" {
		return fmt.Errorf("the budgets of the OSDs allow %s: %+v", says, budgets)
	}
	for name, b := range budgets {
		switch name {
		case provedBudget:
			if current := b.Status.DisruptionsAllowed == 1 && *b.Spec.MinAvailable == b.Status.CurrentHealthy-1; !current &&
				!b.syncFailed() {
				return fmt.Errorf("budget of the marked OSDs is not at rest: %+v", b)
			}
		case unprovedBudget, "lockkeeper-" + policyName + "-mon", "lockkeeper-" + policyName + "-mgr":
		default:
			return fmt.Errorf("unexpected budget %s", name)
		}
		// What the alert KubePdbNotEnoughHealthyPods asks.
		if b.Status.CurrentHealthy < b.Status.DesiredHealthy {
			return fmt.Errorf("budget %s looks broken at rest: %+v", name, b.Status)
		}
	}
	return w.checkMarks(true)
}

// checkMarks: every OSD's pod is marked, each with its own mark; or none is.
func (w *world) checkMarks(want bool) error {
	pods, err := w.pods()
	if err != nil {
		return err
	}
	for _, p := range pods {
		mark, marked := p.Metadata.Labels[markLabel]
		if osd := p.Metadata.Labels["ceph-osd-id"] != ""; marked != (want && osd) || marked &&
			!strings.HasPrefix(mark, p.Metadata.UID+".") {
			return fmt.Errorf("pod %s has the mark %q", p.Metadata.Name, mark)
		}
	}
	return nil
}

func (w *world) checkJobs() error {
	out, err := w.command("temporal", "workflow", "list", "--query",
		`ExecutionStatus="Running" AND WorkflowType!="Keeper"`, "-o", "json").Output()
	if err != nil {
		return fmt.Errorf("temporal workflow list: %w", err)
	}
	var running []struct {
		Execution struct {
			WorkflowID string `json:"workflowId"`
		}
	}
	if err := json.Unmarshal(out, &running); err != nil {
		return fmt.Errorf("temporal workflow list: %w in %q", err, out)
	}
	if len(running) > 0 {
		return fmt.Errorf("jobs are left: %+v", running)
	}
	return nil
}

func (w *world) checkLoad() error {
	var r struct {
		Writes       int `json:"writes"`
		FailedWrites int `json:"failed_writes"`
		LostWrites   int `json:"lost_writes"`
	}
	if err := w.read(&r, "lab", "load", "report", "--name", w.name, "-o", "json"); err != nil {
		return err
	}
	if r.FailedWrites > 0 || r.LostWrites > 0 || r.Writes == 0 {
		return fmt.Errorf("the writer: %+v", r)
	}
	return nil
}
