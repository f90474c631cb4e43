package test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

// The hooks by which a Machine is held, and that of a control plane without which the first does not count.
const (
	preDrain     = "pre-drain.delete.hook.machine.cluster.x-k8s.io/test"
	preTerminate = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/test"
	machinesLab  = "machines"
	ofMachines   = "machines" // the namespace
)

// patience is for a MachineHealthCheck, which looks at its Machines every 15 s only.
const patience = 2 * time.Minute

var machineKind = schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "machines"}

// world is a lab with Machines.
type world struct {
	*testing.T
	dynamic.Interface
}

// TestMachines goes through the life of Machines in one lab: its steps build on each other.
func TestMachines(t *testing.T) {
	if _, err := os.Stat("../bin/cluster-api"); errors.Is(err, fs.ErrNotExist) {
		if os.Getenv("TEST_ALL") != "" {
			t.Fatal("Cluster API is not built: run make cluster-api")
		}
		t.Skip("Cluster API is not built: make test-all, or make cluster-api, builds it")
	}
	awaitTurn(t, 3)
	t.Parallel()
	mustLab(t, "up", "--name", machinesLab, "--ceph=none", "--temporal=false", "--machines=7")
	t.Cleanup(func() { mustLab(t, "down", "--name", machinesLab) })
	w := connectMachines(t)
	for _, node := range []string{"node-a", "node-f", "node-g"} { // the lab's first, its last, and one more
		w.machineOf(node)
	}

	// A node is lost: its Machine is deleted, the node with it, and another comes.
	lost := w.machineOf("node-d")
	mustLab(t, "fault", "--name", machinesLab, "node-lost", "node-d")
	w.eventually("replaced", func() bool { return !w.exists(lost) && len(w.nodes()) == 7 && w.nodes()["node-h"] != "" })

	// One that is held stays, however long its node is lost, and keeps the arithmetic of the health check.
	held := w.machineOf("node-a")
	w.annotate(held, preDrain, preTerminate)
	mustLab(t, "fault", "--name", machinesLab, "node-lost", "node-a")
	w.eventually("held", func() bool { return w.deleting(held) == "WaitingForPreDrainHook" })
	check, err := w.Resource(machineKind.GroupVersion().WithResource("machinehealthchecks")).Namespace(ofMachines).
		Get(t.Context(), "workers", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expected, _, _ := unstructured.NestedInt64(check.Object, "status", "expectedMachines")
	healthy, _, _ := unstructured.NestedInt64(check.Object, "status", "currentHealthy")
	if expected != 7 || healthy != 6 {
		t.Errorf("%d expected, %d healthy", expected, healthy)
	}
	w.release(held)
	w.eventually("released", func() bool { return !w.exists(held) && w.nodes()["node-a"] == "" })

	// Without a Machine of the control plane the pre-drain hook is passed over, the pre-terminate hook is not.
	w.remove("control-plane")
	w.eventually("no control plane", func() bool { return !w.exists("control-plane") })
	first, both := w.machineOf("node-c"), w.machineOf("node-f")
	w.annotate(first, preDrain)
	w.annotate(both, preDrain, preTerminate)
	w.remove(first)
	w.remove(both)
	w.eventually("passed over", func() bool { return !w.exists(first) })
	w.eventually("held all the same", func() bool { return w.deleting(both) == "WaitingForPreTerminateHook" })

	// The whole machine is rebooted: nodes of Machines that are gone stay away.
	w.release(both)
	w.eventually("gone", func() bool { return !w.exists(both) })
	mustLab(t, "down", "--keep", "--name", machinesLab)
	mustLab(t, "up", "--name", machinesLab)
	if states := mustLab(t, "status", "--name", machinesLab, "-o", "json"); strings.Contains(states, `"node-d"`) {
		t.Error("node-d is back")
	}
}

func connectMachines(t *testing.T) world {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("",
		strings.TrimSpace(mustLab(t, "kubeconfig", "--name", machinesLab)))
	if err != nil {
		t.Fatal(err)
	}
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return world{t, c}
}

func (w world) machines() []unstructured.Unstructured {
	w.Helper()
	list, err := w.Resource(machineKind).Namespace(ofMachines).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return list.Items
}

// nodes are the names of Machines by those of their nodes.
func (w world) nodes() map[string]string {
	w.Helper()
	of := map[string]string{}
	for _, m := range w.machines() {
		if node, _, _ := unstructured.NestedString(m.Object, "status", "nodeRef", "name"); node != "" {
			of[node] = m.GetName()
		}
	}
	return of
}

func (w world) machineOf(node string) string {
	w.Helper()
	name := w.nodes()[node]
	if name == "" {
		w.Fatalf("%s has no Machine: there are %v", node, w.nodes())
	}
	return name
}

func (w world) exists(name string) bool {
	for _, m := range w.machines() {
		if m.GetName() == name {
			return true
		}
	}
	return false
}

// deleting is how far the deletion of a Machine is.
func (w world) deleting(name string) string {
	for _, m := range w.machines() {
		conditions, _, _ := unstructured.NestedSlice(m.Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); m.GetName() == name && c["type"] == "Deleting" {
				return c["reason"].(string)
			}
		}
	}
	return ""
}

func (w world) annotate(name string, keys ...string) {
	w.Helper()
	values := map[string]any{}
	for _, key := range keys {
		values[key] = ""
	}
	w.patch(name, values)
}

func (w world) release(name string) {
	w.Helper()
	w.patch(name, map[string]any{preDrain: nil, preTerminate: nil})
}

func (w world) patch(name string, annotations map[string]any) {
	w.Helper()
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		w.Fatal(err)
	}
	if _, err := w.Resource(machineKind).Namespace(ofMachines).Patch(w.Context(), name, types.MergePatchType, b,
		metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w world) remove(name string) {
	w.Helper()
	if err := w.Resource(machineKind).Namespace(ofMachines).Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w world) eventually(what string, ok func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if ok() {
			return
		}
	}
	var all []string
	for _, m := range w.machines() {
		all = append(all, m.GetName()+" "+w.deleting(m.GetName()))
	}
	w.Fatalf("not %s within %s: %v, nodes %v", what, patience, all, w.nodes())
}
