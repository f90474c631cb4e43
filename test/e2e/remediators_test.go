package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lockkeeper/lockkeeper/test/remediator"
)

// This file is what scenarios with a MachineDisruptionBudget have: Machines of metal, and a health check that asks the
// budget before it has a node started again.

// ofBudgets tells whether fencing asks MachineDisruptionBudgets.
func (w *world) ofBudgets() bool { return strings.HasPrefix(w.fencing, string(remediator.Budgets)+":") }

// kernelDeadlock is a condition that a node problem detector reports.
const kernelDeadlock = "KernelDeadlock"

// makeMachines makes a Machine for each node, and a health check of them all.
func (w *world) makeMachines() error {
	crds := filepath.Join(w.root, "test", "api", "testdata", "fencing-crds.yaml")
	for _, args := range [][]string{
		{"create", "namespace", machinesNamespace},
		{"apply", "-f", crds},
		{"wait", "--for=condition=Established", "-f", crds, "--timeout=30s"},
	} {
		if err := w.run("kubectl", args...); err != nil {
			return err
		}
	}
	var nodes struct {
		Items []struct {
			Metadata struct {
				Name   string
				Labels map[string]string
			}
		}
	}
	if err := w.read(&nodes, "kubectl", "get", "nodes", "-o", "json"); err != nil {
		return err
	}
	objects := `
apiVersion: machine.openshift.io/v1beta1
kind: MachineHealthCheck
metadata: {name: storage, namespace: ` + machinesNamespace + `}
spec:
  selector: {}
  unhealthyConditions:
    - {type: Ready, status: Unknown, timeout: 2s}
`
	for _, n := range nodes.Items {
		objects += fmt.Sprintf(`---
apiVersion: machine.openshift.io/v1beta1
kind: Machine
metadata: {name: machine-of-%s, namespace: %s}
spec: {providerID: "baremetalhost:///%s/%s"}
status: {nodeRef: {name: %s}}
`, n.Metadata.Name, machinesNamespace, n.Metadata.Labels["topology.kubernetes.io/zone"], n.Metadata.Name,
			n.Metadata.Name)
	}
	return w.apply(objects)
}

func (w *world) apply(objects string) error {
	c := w.command("kubectl", "apply", "-f", "-")
	c.Stdin = strings.NewReader(objects)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl apply: %w: %s", err, out)
	}
	return nil
}

// deadlocks is a health check that has nodes fenced that are ready.
const deadlocks = `
apiVersion: machine.openshift.io/v1beta1
kind: MachineHealthCheck
metadata: {name: deadlocks, namespace: ` + machinesNamespace + `}
spec: {selector: {}, unhealthyConditions: [{type: ` + kernelDeadlock + `, status: "True", timeout: 4s}]}
`

// fencer has nodes started again, and judges each fence by Ceph's word.
type fencer struct {
	*remediator.Remediator
	w      *world
	wrong  []string
	before map[string]int // how many fences there had been when a zone's Machine was to be lost
}

// startFencing has the health check at work until t ends.
func (w *world) startFencing(t *testing.T) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", w.env["KUBECONFIG"])
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	log.SetLogger(logr.Discard())
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fencer{w: w, before: map[string]int{}}
	f.Remediator = &remediator.Remediator{
		Client: c, API: remediator.Budgets, Namespace: machinesNamespace, Every: 500 * time.Millisecond, Fence: f.fence,
	}
	w.fencer = f
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); f.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-ended
		for _, wrong := range f.wrong {
			t.Error(wrong)
		}
	})
}

// fence starts a node again, and does not wait for it: other nodes may fail meanwhile.
func (f *fencer) fence(_ context.Context, node string, _ bool) error {
	if why, err := f.w.hurtsWithout(node); err != nil || why != "" {
		f.wrong = append(f.wrong, fmt.Sprintf("%s is fenced although %s (%v)", node, why, err))
	}
	c := f.w.command("lab", "fault", "node-reboot", node, "--name", f.w.name)
	if err := c.Start(); err != nil {
		return err
	}
	go func(c *exec.Cmd) {
		_ = c.Wait()
		_ = f.w.reportDeadlock(node, false) // the scenario waits for the end of the fence, which needs it
	}(c)
	return nil
}

// hurtsWithout is why a node must not be fenced now: OSDs on it serve, and not all else is whole.
func (w *world) hurtsWithout(node string) (why string, err error) {
	pods, err := w.pods()
	if err != nil {
		return "", err
	}
	var dump struct{ OSDs []struct{ OSD, Up int } }
	if err := w.read(&dump, "ceph", "osd", "dump", "-f", "json"); err != nil {
		return "", err
	}
	var serve, down []string
	for _, o := range dump.OSDs {
		id := strconv.Itoa(o.OSD)
		here := slices.ContainsFunc(pods, func(p pod) bool {
			return p.Spec.NodeName == node && p.Metadata.Labels["ceph_daemon_id"] == id &&
				p.Metadata.Labels["app"] == "rook-ceph-osd"
		})
		switch {
		case o.Up == 0 && !here:
			down = append(down, "osd."+id)
		case o.Up == 1 && here:
			serve = append(serve, "osd."+id)
		}
	}
	if len(serve) == 0 {
		return "", nil
	}
	if len(down) > 0 {
		return fmt.Sprintf("%v serve on it, and %v are down elsewhere", serve, down), nil
	}
	var status struct {
		PGMap struct {
			States []struct {
				Name string `json:"state_name"`
			} `json:"pgs_by_state"`
		}
	}
	if err := w.read(&status, "ceph", "status", "-f", "json"); err != nil {
		return "", err
	}
	for _, s := range status.PGMap.States {
		if !strings.HasPrefix(s.Name, "active+clean") {
			return fmt.Sprintf("%v serve on it, and placement groups are %s", serve, s.Name), nil
		}
	}
	return "", nil
}

// reportDeadlock is a node problem detector's word on a node.
func (w *world) reportDeadlock(node string, is bool) error {
	status := map[bool]string{true: "True", false: "False"}[is]
	now := time.Now().UTC().Format(time.RFC3339)
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []map[string]any{{
		"type": kernelDeadlock, "status": status, "reason": "Detected", "lastTransitionTime": now, "lastHeartbeatTime": now,
	}}}})
	if err != nil {
		return err
	}
	return w.run("kubectl", "patch", "node", node, "--subresource=status", "--type=strategic", "-p", string(patch))
}

// budgetSays waits until the MachineDisruptionBudget says how many Machines may be unavailable; "never": that nobody
// may go, in words that cover nodes that are ready.
func (w *world) budgetSays(most string) error {
	said := "^" + most + " $"
	if most == "never" {
		said = "^ 2147483647$"
	}
	return w.eventually(patience, said, "kubectl", "-n", machinesNamespace, "get",
		"machinedisruptionbudgets.healthchecking.openshift.io", policyName, "-o",
		"jsonpath={.spec.maxUnavailable} {.spec.minAvailable}")
}

// isFenced tells whether the node that a zone was to lose is fenced since then, and which ones are.
func (w *world) isFenced(zone string) (all []string, is bool) {
	all = w.fencer.Fenced()[w.fencer.before[zone]:]
	return all, slices.Contains(all, w.fenced[zone].Status.NodeRef.Name)
}

func (w *world) awaitFenced(zone string) error {
	return until(patience, func() error {
		if all, is := w.isFenced(zone); !is {
			return fmt.Errorf("fenced are %v", all)
		}
		return nil
	})
}

// budgetWords are those of scenarios with a MachineDisruptionBudget.
func (w *world) budgetWords() map[string]word {
	return map[string]word{
		"budget-says": {"NUMBER|never", func(w *world, a []string) error { return w.budgetSays(a[0]) }},
		"cut-off": {"ZONE", func(w *world, a []string) error {
			m, err := w.doom(a[0])
			if err != nil {
				return err
			}
			return w.fault("node-lost", m.Status.NodeRef.Name, "--keep-processes")
		}},
		"deadlocks-are-fenced": {"", func(w *world, _ []string) error { return w.apply(deadlocks) }},
		"deadlocks-are-not-fenced": {"", func(w *world, _ []string) error {
			return w.run("kubectl", "-n", machinesNamespace, "delete", "machinehealthchecks.machine.openshift.io", "deadlocks")
		}},
		"kernel-deadlock": {"ZONE", func(w *world, a []string) error {
			m, err := w.doom(a[0])
			if err != nil {
				return err
			}
			return w.reportDeadlock(m.Status.NodeRef.Name, true)
		}},
		"deadlock-ends": {"ZONE", func(w *world, a []string) error {
			return w.reportDeadlock(w.fenced[a[0]].Status.NodeRef.Name, false)
		}},
		"fenced": {"ZONE", func(w *world, a []string) error { return w.awaitFenced(a[0]) }},
		"not-fenced": {"ZONE", func(w *world, a []string) error {
			if all, is := w.isFenced(a[0]); is {
				return fmt.Errorf("fenced are %v", all)
			}
			return nil
		}},
	}
}
