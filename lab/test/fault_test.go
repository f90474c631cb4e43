package test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/lab/internal/child"
)

// Each test has nodes of its own, so that they may run side by side.

func nodeReady(t *testing.T, name string, want corev1.ConditionStatus) *corev1.Node {
	t.Helper()
	var node *corev1.Node
	eventually(t, name+" Ready="+string(want), func() bool {
		var err error
		node, err = client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status == want
			}
		}
		return false
	})
	return node
}

// addNode adds a node that nothing but pods of that test are put on.
func addNode(t *testing.T, name string) {
	t.Helper()
	fault(t, "node-add", name, "--zone", "zone-x")
	nodeReady(t, name, corev1.ConditionTrue)
	t.Cleanup(func() { _ = client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

// startOn starts a pod on a node. It writes the number of its process to its log.
func startOn(t *testing.T, ns, node string) {
	t.Helper()
	pod := newPod("pod", shell("main", "read pid rest < /proc/self/stat; echo $pid; exec sleep 600"))
	pod.Spec.NodeName = node
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	create(t, ns, pod)
	await(t, ns, "pod", "ready", ready)
}

func TestLostNodeReturns(t *testing.T) {
	t.Parallel()
	addNode(t, "test-lost")
	ns := namespace(t)
	startOn(t, ns, "test-lost")
	before := nodeReady(t, "test-lost", corev1.ConditionTrue)

	// The network is lost: nobody hears of the node, but its pod lives on.
	fault(t, "node-lost", "test-lost", "--keep-processes")
	nodeReady(t, "test-lost", corev1.ConditionUnknown)
	await(t, ns, "pod", "not ready", func(p *corev1.Pod) bool { return !ready(p) })
	fault(t, "node-return", "test-lost")
	after := nodeReady(t, "test-lost", corev1.ConditionTrue)
	p := await(t, ns, "pod", "ready", ready)
	if p.Status.ContainerStatuses[0].RestartCount != 0 || before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID {
		t.Errorf("restarted: %+v", p.Status.ContainerStatuses)
	}

	// Power is lost, and with it the pod.
	fault(t, "node-lost", "test-lost")
	nodeReady(t, "test-lost", corev1.ConditionUnknown)
	fault(t, "node-return", "test-lost")
	after = nodeReady(t, "test-lost", corev1.ConditionTrue)
	await(t, ns, "pod", "restarted", restarted(1))
	await(t, ns, "pod", "ready", ready)
	if before.Status.NodeInfo.BootID == after.Status.NodeInfo.BootID {
		t.Error("same boot ID as before")
	}
}

func TestRebootedNodeHasNewBootID(t *testing.T) {
	t.Parallel()
	addNode(t, "test-reboot")
	ns := namespace(t)
	startOn(t, ns, "test-reboot")
	before := nodeReady(t, "test-reboot", corev1.ConditionTrue)
	fault(t, "node-reboot", "test-reboot", "--down", "200ms")
	await(t, ns, "pod", "restarted", restarted(1))
	await(t, ns, "pod", "ready", ready)
	eventually(t, "new boot ID", func() bool {
		return nodeReady(t, "test-reboot", corev1.ConditionTrue).Status.NodeInfo.BootID != before.Status.NodeInfo.BootID
	})
}

func TestDeletedNodeStaysAway(t *testing.T) {
	t.Parallel()
	addNode(t, "test-deleted")
	ns := namespace(t)
	startOn(t, ns, "test-deleted")
	if err := client.CoreV1().Nodes().Delete(t.Context(), "test-deleted", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "removed", func() bool {
		return strings.Contains(mustLab(t, "status", "--name", labName, "-o", "json"), `"state": "Removed"`)
	})
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "test-deleted", metav1.GetOptions{}); err == nil {
		t.Error("the node has registered again")
	}
	fault(t, "node-return", "test-deleted")
	nodeReady(t, "test-deleted", corev1.ConditionTrue)
}

// TestRemovedMachine is gone with its disk, and one of the same name knows nothing of it.
func TestRemovedMachine(t *testing.T) {
	t.Parallel()
	addNode(t, "test-removed")
	ns := namespace(t)
	startOn(t, ns, "test-removed")
	before := nodeReady(t, "test-removed", "True")
	folder := filepath.Join(home, "h", labName, "nodes", "test-removed")
	if _, err := os.Stat(folder); err != nil {
		t.Error(err)
	}
	fault(t, "node-remove", "test-removed")
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its folder: %v", err)
	}
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "test-removed", metav1.GetOptions{}); err == nil {
		t.Error("its Node is there")
	}
	if strings.Contains(mustLab(t, "status", "--name", labName, "-o", "json"), "test-removed") {
		t.Error("the lab still knows it")
	}
	fault(t, "node-add", "test-removed", "--zone", "zone-y")
	if after := nodeReady(t, "test-removed", "True"); after.UID == before.UID {
		t.Error("the same Node")
	}
}

func TestHungNodeAndPod(t *testing.T) {
	t.Parallel()
	addNode(t, "test-hung")
	ns := namespace(t)
	startOn(t, ns, "test-hung")
	state := func() string { return processState(t, strings.TrimSpace(logs(t, ns, "pod"))) }
	fault(t, "pod-hang", ns+"/pod")
	eventually(t, "stopped", func() bool { return state() == "T" })
	fault(t, "pod-resume", ns+"/pod")
	eventually(t, "resumed", func() bool { return state() == "S" })
	pid := strings.TrimSpace(logs(t, ns, "pod"))
	fault(t, "node-hang", "test-hung")
	nodeReady(t, "test-hung", corev1.ConditionUnknown)
	if s := processState(t, pid); s != "T" {
		t.Errorf("state %s, want T", s)
	}
	fault(t, "node-resume", "test-hung")
	nodeReady(t, "test-hung", corev1.ConditionTrue)
	p := await(t, ns, "pod", "ready", ready)
	if n := p.Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("%d restarts", n)
	}
	fault(t, "pod-kill", ns+"/pod", "--signal", "9")
	p = await(t, ns, "pod", "restarted", restarted(1))
	if s := p.Status.ContainerStatuses[0].LastTerminationState.Terminated; s == nil || s.ExitCode != 137 {
		t.Errorf("last state %+v", s)
	}
}

func TestKilledComponentComesBack(t *testing.T) {
	t.Parallel()
	fault(t, "component-kill", "kube-scheduler", "--down", "10ms")
	eventually(t, "started again", func() bool {
		var status struct {
			Status struct{ Components []child.State }
		}
		if err := json.Unmarshal([]byte(mustLab(t, "status", "--name", labName, "-o", "json")), &status); err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(status.Status.Components, func(c child.State) bool {
			return c.Name == "kube-scheduler" && c.Restarts == 1 && c.PID != 0 && c.LastExit == "signal: killed"
		})
	})
}

// processState finds the state of a process by its number inside the lab.
func processState(t *testing.T, pid string) string {
	t.Helper()
	for _, p := range labProcesses(t) {
		if p.inner == pid {
			return p.state
		}
	}
	return "gone"
}

func TestFaultsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ args, want string }{
		{"node-lost nowhere", `no node "nowhere": there are node-a`},
		{"pod-kill nowhere", "must be NAMESPACE/POD"},
		{"pod-kill no/pod", "no node runs a pod no/pod"},
		{"pod-kill no/pod --signal 99", "--signal 99: allowed are 1 to 64"},
		{"node-add node-a --zone zone-x", "node node-a exists already"},
		{"node-add new", "--zone"},
		{"component-kill kubelet", `no component "kubelet": there are kube-apiserver`},
		{"component-hang kubelet", `no component "kubelet": there are kube-apiserver`},
		{"component-kill kube-scheduler --down -1s", "--down -1s: must not be negative"},
		{"node-lost node-a --name other", "lab other is not running"},
	} {
		out, err := lab(append([]string{"fault", "--name", labName}, strings.Fields(test.args)...)...)
		if err == nil || !strings.Contains(out, test.want) {
			t.Errorf("%s: %v, %s", test.args, err, out)
		}
	}
}

type labProcess struct{ outer, inner, state string }

// labProcesses are all processes in PID namespaces below ours that belong to these tests.
func labProcesses(t *testing.T) []labProcess {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var list []labProcess
	for _, e := range entries {
		b, err := os.ReadFile("/proc/" + e.Name() + "/status")
		if err != nil {
			continue
		}
		environ, _ := os.ReadFile("/proc/" + e.Name() + "/environ")
		p := labProcess{outer: e.Name()}
		for line := range strings.Lines(string(b)) {
			key, value, _ := strings.Cut(line, ":")
			switch fields := strings.Fields(value); key {
			case "State":
				p.state = fields[0]
			case "NSpid":
				p.inner = fields[len(fields)-1]
			}
		}
		if strings.Contains(string(environ), home) {
			list = append(list, p)
		}
	}
	return list
}
