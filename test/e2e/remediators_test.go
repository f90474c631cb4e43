package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lockkeeper/lockkeeper/test/remediator"
)

// This file is what scenarios have whose fencing is imitated: a health check for each API, and who carries out what it
// wants. A MachineDisruptionBudget is asked before a node of metal is started again; OpenShift deletes Machines, and
// others take their place; a NodeHealthCheck has nodes started again.

// fencedBy is the API that is used to fence nodes.
func (w *world) fencedBy() remediator.API {
	api, _, _ := strings.Cut(w.fencing, ":")
	return remediator.API(api)
}

// clusterAPI is the one whose controllers are real.
const clusterAPI remediator.API = "ClusterAPI"

// imitated tells whether fencing is.
func (w *world) imitated() bool { return w.fencing != "" && w.fencedBy() != clusterAPI }

// healthChecks are of all nodes, with seconds where real ones have minutes.
var healthChecks = map[remediator.API]string{
	remediator.Budgets: `
apiVersion: machine.openshift.io/v1beta1
kind: MachineHealthCheck
metadata: {name: storage, namespace: ` + machinesNamespace + `}
spec: {selector: {}, unhealthyConditions: [{type: Ready, status: Unknown, timeout: 2s}]}
`,
	remediator.OpenShift: `
apiVersion: machine.openshift.io/v1beta1
kind: MachineHealthCheck
metadata: {name: storage, namespace: ` + machinesNamespace + `}
spec: {selector: {}, maxUnhealthy: "50%", unhealthyConditions: [{type: Ready, status: Unknown, timeout: 2s}]}
`,
	remediator.NodeHealths: `
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata: {name: storage}
spec:
  selector: {}
  minHealthy: 3
  unhealthyConditions: [{type: Ready, status: Unknown, duration: 2s}]
  remediationTemplate:
    apiVersion: self-node-remediation.medik8s.io/v1alpha1
    kind: SelfNodeRemediationTemplate
    namespace: ` + machinesNamespace + `
    name: automatic
`,
}

// kernelDeadlock is a condition that a node problem detector reports.
const kernelDeadlock = "KernelDeadlock"

// makeMachines makes what is fenced: a Machine for each node, unless Nodes are fenced, and a health check of them all.
func (w *world) makeMachines() error {
	crds := filepath.Join(w.root, "test", "api", "testdata", "fencing-crds.yaml")
	requests := filepath.Join(w.root, "test", "remediator", "testdata", "medik8s.yaml")
	for _, args := range [][]string{
		{"create", "namespace", machinesNamespace},
		{"apply", "-f", crds, "-f", requests},
		{"wait", "--for=condition=Established", "-f", crds, "-f", requests, "--timeout=30s"},
	} {
		if err := w.run("kubectl", args...); err != nil {
			return err
		}
	}
	objects := healthChecks[w.fencedBy()]
	if w.fencedBy() != remediator.NodeHealths {
		nodes, err := w.nodesByZone()
		if err != nil {
			return err
		}
		for node, zone := range nodes {
			objects += w.machineOf(node, zone)
		}
	}
	return w.apply(objects)
}

// nodesByZone are all nodes, each with its zone.
func (w *world) nodesByZone() (map[string]string, error) {
	var nodes struct {
		Items []struct {
			Metadata struct {
				Name   string
				Labels map[string]string
			}
		}
	}
	err := w.get(&nodes, corePath+"/nodes")
	byName := map[string]string{}
	for _, n := range nodes.Items {
		byName[n.Metadata.Name] = n.Metadata.Labels["topology.kubernetes.io/zone"]
	}
	return byName, err
}

// machineOf is the Machine of a node: of metal, which is started again; or of a cloud, where another one takes its
// place.
func (w *world) machineOf(node, zone string) string {
	provider, finalizers := "baremetalhost", ""
	if w.fencedBy() == remediator.OpenShift {
		provider, finalizers = "aws", remediator.Finalizer
	}
	return fmt.Sprintf(`---
apiVersion: machine.openshift.io/v1beta1
kind: Machine
metadata: {name: machine-of-%s, namespace: %s, finalizers: [%s]}
spec: {providerID: "%s:///%s/%s"}
status: {nodeRef: {name: %s}}
`, node, machinesNamespace, finalizers, provider, zone, node, node)
}

func (w *world) apply(objects string) error {
	c := w.command("kubectl", "apply", "-f", "-")
	c.Stdin = strings.NewReader(objects)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl apply: %w: %s", err, out)
	}
	return nil
}

// healthCheckOf has nodes fenced that have one condition for so long.
func healthCheckOf(name, condition, status, timeout string) string {
	return fmt.Sprintf(`
apiVersion: machine.openshift.io/v1beta1
kind: MachineHealthCheck
metadata: {name: %s, namespace: %s}
spec: {selector: {}, unhealthyConditions: [{type: %s, status: %q, timeout: %s}]}
`, name, machinesNamespace, condition, status, timeout)
}

// machineWithoutNode is one that is still being made.
const machineWithoutNode = `
apiVersion: machine.openshift.io/v1beta1
kind: Machine
metadata: {name: machine-to-be, namespace: ` + machinesNamespace + `}
spec: {providerID: "baremetalhost:///zone-x/node-to-be"}
`

// fencer carries out what a health check wants, and judges each fence by Ceph's word.
type fencer struct {
	*remediator.Remediator
	w      *world
	wrong  []string
	before map[string]int // how many fences there had been when a zone's Machine was to be lost
	made   int            // nodes, in the place of others
	byHand sync.Map       // nodes that a person has released, whatever Ceph says or does not
}

// startFencing has the health check at work until the world ends.
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
		Client: c, API: w.fencedBy(), Every: 500 * time.Millisecond, Fence: f.fence,
		Said: func(err error) { w.owner.Logf("the remediator: %v", err) },
	}
	if w.fencedBy() != remediator.NodeHealths {
		f.Namespace = machinesNamespace
	}
	w.fencer = f
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); f.Run(ctx) }()
	w.owner.Cleanup(func() {
		stop()
		<-ended
		for _, wrong := range f.wrong {
			w.owner.Error(wrong)
		}
	})
}

// fence starts a node again, and does not wait for it: other nodes may fail meanwhile. One that goes for good is
// replaced.
func (f *fencer) fence(_ context.Context, node string, gone bool) error {
	if _, byHand := f.byHand.LoadAndDelete(node); !byHand {
		l, err := f.w.lookAtCeph()
		if why := l.hurtsWithout(node); err != nil || why != "" {
			f.wrong = append(f.wrong, fmt.Sprintf("%s is fenced although %s (%v)", node, why, err))
		}
	}
	if gone {
		return f.replace(node)
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

// replace takes a node away, and gives its zone another one, with a Machine.
func (f *fencer) replace(node string) error {
	nodes, err := f.w.nodesByZone()
	if err != nil {
		return err
	}
	zone := nodes[node]
	if zone == "" { // it went in an earlier try
		return nil
	}
	f.made++
	another := fmt.Sprintf("node-r%d", f.made)
	return errors.Join(
		f.w.fault("node-remove", node),
		f.w.fault("node-add", another, "--zone", zone),
		f.w.apply(f.w.machineOf(another, zone)),
	)
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
	want := most + " -"
	if most == "never" {
		want = fmt.Sprintf("- %d", math.MaxInt32)
	}
	return until(patience, func() error {
		var budget struct {
			Spec struct{ MaxUnavailable, MinAvailable *int }
		}
		err := w.get(&budget, "/apis/healthchecking.openshift.io/v1alpha1/namespaces/"+machinesNamespace+
			"/machinedisruptionbudgets/"+policyName)
		if says := number(budget.Spec.MaxUnavailable) + " " + number(budget.Spec.MinAvailable); err == nil && says != want {
			return fmt.Errorf("maxUnavailable and minAvailable are %s", says)
		}
		return err
	})
}

func number(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
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

// remediatorWords are those of scenarios whose fencing is imitated.
func (w *world) remediatorWords() map[string]word {
	return map[string]word{
		"budget-says": {"NUMBER|never", func(w *world, a []string) error { return w.budgetSays(a[0]) }},
		"cut-off": {"ZONE", func(w *world, a []string) error {
			m, err := w.doom(a[0])
			if err != nil {
				return err
			}
			return w.fault("node-lost", m.Status.NodeRef.Name, "--keep-processes")
		}},
		"deadlocks-are-fenced-after": {"DURATION", func(w *world, a []string) error {
			return w.apply(healthCheckOf("deadlocks", kernelDeadlock, "True", a[0]))
		}},
		"unreachable-are-fenced-after": {"DURATION", func(w *world, a []string) error {
			return w.apply(healthCheckOf("storage", "Ready", "Unknown", a[0]))
		}},
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
		"first-waits": {"BOOL", func(w *world, a []string) error {
			first, err := strconv.ParseBool(a[0])
			w.fencer.FirstWaits.Store(first)
			return err
		}},
		"fenced": {"ZONE", func(w *world, a []string) error { return w.awaitFenced(a[0]) }},
		"no-power": {"ZONE", func(w *world, a []string) error {
			return w.fault("node-lost", w.fenced[a[0]].Status.NodeRef.Name)
		}},
		"machine-without-node": {"", func(w *world, _ []string) error { return w.apply(machineWithoutNode) }},
		"machine-returns": {"ZONE", func(w *world, a []string) error {
			return w.apply(w.machineOf(w.fenced[a[0]].Status.NodeRef.Name, a[0]))
		}},
		"not-fenced": {"ZONE", func(w *world, a []string) error {
			if all, is := w.isFenced(a[0]); is {
				return fmt.Errorf("fenced are %v", all)
			}
			return nil
		}},
	}
}
