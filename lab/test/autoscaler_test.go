package test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const autoscalerLab = "scaling"

// TestAutoscaler starts and stops it in a lab of its own: its steps build on each other. What the autoscaler does to
// nodes is tried by the tests of lockkeeper.
func TestAutoscaler(t *testing.T) {
	if _, err := os.Stat("../bin/cluster-autoscaler"); errors.Is(err, fs.ErrNotExist) {
		if os.Getenv("TEST_ALL") != "" {
			t.Fatal("the Cluster Autoscaler is not built: run make autoscaler")
		}
		t.Skip("the Cluster Autoscaler is not built: make test-all, or make autoscaler, builds it")
	}
	t.Parallel()
	of := func(args ...string) []string { return append(args, "--name", autoscalerLab) }
	refused(t, "--node-group zone-q: there are zone-x", of("up", "--autoscaler", "--node-group", "zone-q=0:1")...)
	refused(t, "are for --autoscaler", of("up", "--node-group", "zone-x=0:1")...)
	refused(t, "ZONE=MIN:MAX", of("up", "--autoscaler", "--node-group", "zone-x=2")...)

	mustLab(t, of("up", "--ceph=none", "--temporal=false", "--zones=1", "--mons=1", "--autoscaler", "--node-cpus=4")...)
	t.Cleanup(func() { mustLab(t, of("down")...) })
	client := connectTo(t, autoscalerLab)
	node, err := client.CoreV1().Nodes().Get(t.Context(), "node-a", metav1.GetOptions{})
	if err != nil || node.Status.Allocatable.Cpu().Value() != 4 {
		t.Errorf("node-a has %v, %v", node.Status.Allocatable.Cpu(), err)
	}
	refused(t, "runs already", of("autoscaler", "start")...)
	mustLab(t, of("autoscaler", "stop")...)
	refused(t, "no Cluster Autoscaler runs", of("autoscaler", "stop")...)
	refused(t, "does not start", of("autoscaler", "start", "--autoscaler-flag", "no-such-flag=1")...)
	if names := nodesOf(t, client); names != "node-a node-b" { // by default the group does not become smaller
		t.Error(names)
	}

	// Killed, it is started again. One node goes: it stays away when the lab is started again.
	mustLab(t, of("autoscaler", "start", "--node-group", "zone-x=1:2")...)
	eventually(t, "one node is left", func() bool { return !strings.Contains(nodesOf(t, client), " ") })
	mustLab(t, of("fault", "component-kill", "cluster-autoscaler")...)
	eventually(t, "started again", func() bool {
		return strings.Contains(mustLab(t, of("status", "-o", "json")...), `"restarts": 1`)
	})
	left := nodesOf(t, client)
	mustLab(t, of("down", "--keep")...)
	mustLab(t, of("up")...)
	if now := nodesOf(t, connectTo(t, autoscalerLab)); now != left {
		t.Errorf("nodes %s, before %s", now, left)
	}
}

// refused runs a command of the lab that must fail, and say why.
func refused(t *testing.T, why string, args ...string) {
	t.Helper()
	if out, err := lab(args...); err == nil || !strings.Contains(out, why) {
		t.Errorf("lab %s: %v, want %q\n%s", strings.Join(args, " "), err, why, out)
	}
}

func connectTo(t *testing.T, name string) kubernetes.Interface {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", strings.TrimSpace(mustLab(t, "kubeconfig", "--name", name)))
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// nodesOf are the names of a lab's nodes, in one line.
func nodesOf(t *testing.T, c kubernetes.Interface) string {
	t.Helper()
	list, err := c.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range list.Items {
		names = append(names, n.Name)
	}
	return strings.Join(names, " ")
}
