package test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const karpenterLab = "karpenting"

// TestKarpenter starts and stops it in a lab of its own: its steps build on each other. What Karpenter does to nodes is
// tried by the tests of lockkeeper.
func TestKarpenter(t *testing.T) {
	if _, err := os.Stat("../bin/karpenter"); errors.Is(err, fs.ErrNotExist) {
		if os.Getenv("TEST_ALL") != "" {
			t.Fatal("Karpenter is not built: run make karpenter")
		}
		t.Skip("Karpenter is not built: make test-all, or make karpenter, builds it")
	}
	t.Parallel()
	of := func(args ...string) []string { return append(args, "--name", karpenterLab) }
	refused(t, "are for --karpenter", of("up", "--no-node-pool")...)
	refused(t, "NAME=VALUE", of("up", "--karpenter", "--karpenter-flag", "log-level")...)

	mustLab(t, of("up", "--ceph=none", "--temporal=false", "--zones=1", "--nodes-per-zone=1", "--mons=1", "--karpenter",
		"--node-cpus=4")...)
	t.Cleanup(func() { mustLab(t, of("down")...) })
	refused(t, "runs already", of("karpenter", "start")...)
	mustLab(t, of("fault", "component-kill", "karpenter")...)
	eventually(t, "started again", func() bool {
		return strings.Contains(mustLab(t, of("status", "-o", "json")...), `"restarts": 1`)
	})

	// A pod that only a node of Karpenter's can have runs there, on a machine as large as the node says.
	client := connectTo(t, karpenterLab)
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "wants"},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"karpenter.sh/nodepool": "lab"},
			Containers:   []corev1.Container{{Name: "main", Image: "pause"}},

			TerminationGracePeriodSeconds: new(int64),
		},
	}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	node := ""
	eventually(t, "the pod runs", func() bool {
		p, err := pods.Get(t.Context(), "wants", metav1.GetOptions{})
		if err == nil {
			node = p.Spec.NodeName
		}
		return err == nil && p.Status.Phase == corev1.PodRunning
	})
	if got := cpusOf(t, client, node); got != "1900m" { // of two, Karpenter keeps some for the system
		t.Errorf("%s has %s CPUs", node, got)
	}

	// It is the same machine when the lab is started again, and goes with its node.
	mustLab(t, of("karpenter", "stop")...)
	refused(t, "no Karpenter runs", of("karpenter", "stop")...)
	mustLab(t, of("down", "--keep")...)
	mustLab(t, of("up")...)
	client = connectTo(t, karpenterLab)
	if got := cpusOf(t, client, node); got != "1900m" {
		t.Errorf("%s has %s CPUs", node, got)
	}
	disk := filepath.Join(os.Getenv("LAB_HOME"), karpenterLab, "nodes", node)
	if _, err := os.Stat(disk); err != nil {
		t.Error(err)
	}
	mustLab(t, of("karpenter", "start", "--karpenter-flag", "log-level=info")...)
	if err := client.CoreV1().Nodes().Delete(t.Context(), node, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the machine is gone", func() bool {
		_, err := os.Stat(disk)
		return errors.Is(err, fs.ErrNotExist) && nodesOf(t, client) == "node-a"
	})
	mustLab(t, of("karpenter", "stop")...)
	refused(t, "does not start", of("karpenter", "start", "--karpenter-flag", "no-such-flag=1")...)
}

func cpusOf(t *testing.T, c kubernetes.Interface, node string) string {
	t.Helper()
	n, err := c.CoreV1().Nodes().Get(context.Background(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n.Status.Allocatable.Cpu().String()
}
