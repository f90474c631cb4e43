package test

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestMonsBehindServices: mons on claims come back at their addresses, also on another node of their zone; what becomes
// of their nodes becomes of them.
func TestMonsBehindServices(t *testing.T) {
	if _, err := exec.LookPath("ceph"); err != nil {
		t.Fatal("Ceph is not installed: run make packages")
	}
	awaitTurn(t, 4)
	mustLab(t, "up", "--name", cephLab, "--mon-storage", "pvc", "--ceph", "16", "--temporal=false")
	t.Cleanup(func() { mustLab(t, "down", "--name", cephLab) })
	m := mons{connectCeph(t)}
	first := m.addresses(t)
	m.quorum(t, "a", "b", "c")

	t.Run("killed", func(t *testing.T) {
		mustLab(t, "fault", "--name", cephLab, "pod-kill", rookNamespace+"/"+m.pod(t, "a").Name)
		eventually(t, "started again", func() bool { return restarted(1)(ptr(m.pod(t, "a"))) })
		m.quorum(t, "a", "b", "c")
	})
	t.Run("hung", func(t *testing.T) {
		pod := rookNamespace + "/" + m.pod(t, "c").Name
		mustLab(t, "fault", "--name", cephLab, "pod-hang", pod)
		m.quorum(t, "a", "b")
		mustLab(t, "fault", "--name", cephLab, "pod-resume", pod)
		m.quorum(t, "a", "b", "c")
	})
	t.Run("moved", func(t *testing.T) {
		before := m.pod(t, "b")
		m.patchNode(t, before.Spec.NodeName, `{"spec":{"unschedulable":true}}`)
		m.delete(t, before.Name)
		m.quorum(t, "a", "b", "c")
		after := m.pod(t, "b")
		if after.Spec.NodeName == before.Spec.NodeName || after.Status.PodIP == before.Status.PodIP {
			t.Errorf("it is still on %s at %s", after.Spec.NodeName, after.Status.PodIP)
		}
		if now := m.addresses(t); !slices.Equal(now, first) {
			t.Errorf("%v, before %v", now, first)
		}
		m.patchNode(t, before.Spec.NodeName, `{"spec":{"unschedulable":false}}`)
	})
	t.Run("labels of its node", func(t *testing.T) {
		before := m.pod(t, "a")
		m.patchNode(t, before.Spec.NodeName, `{"metadata":{"labels":{"topology.kubernetes.io/zone":"elsewhere"}}}`)
		time.Sleep(time.Second)
		if after := m.pod(t, "a"); after.UID != before.UID {
			t.Error("it has another pod")
		}
		m.quorum(t, "a", "b", "c")
		m.patchNode(t, before.Spec.NodeName, `{"metadata":{"labels":{"topology.kubernetes.io/zone":"zone-x"}}}`)
	})
	t.Run("zone that cannot schedule", func(t *testing.T) {
		for _, node := range []string{"node-c", "node-f"} {
			m.patchNode(t, node, `{"spec":{"unschedulable":true}}`)
		}
		m.delete(t, m.pod(t, "c").Name)
		m.quorum(t, "a", "b")
		if pod := m.pod(t, "c"); pod.Spec.NodeName != "" {
			t.Errorf("it is on %s", pod.Spec.NodeName)
		}
		m.patchNode(t, "node-f", `{"spec":{"unschedulable":false}}`)
		m.quorum(t, "a", "b", "c")
	})
	t.Run("deleted node", func(t *testing.T) {
		before := m.pod(t, "a")
		if err := m.client.CoreV1().Nodes().Delete(t.Context(), before.Spec.NodeName, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		m.quorum(t, "b", "c")
		// Kubernetes collects pods without a node after a minute.
		for deadline := time.Now().Add(3 * time.Minute); m.pod(t, "a").UID == before.UID; time.Sleep(time.Second) {
			if time.Now().After(deadline) {
				t.Fatal("its pod is still there")
			}
		}
		m.quorum(t, "a", "b", "c")
		// It was on either of its zone's nodes.
		if node := m.pod(t, "a").Spec.NodeName; node == before.Spec.NodeName || node != "node-a" && node != "node-d" {
			t.Errorf("it was on %s and is on %s, not on the other node of its zone", before.Spec.NodeName, node)
		}
	})
}

type mons struct{ ceph }

func ptr[T any](v T) *T { return &v }

// quorum waits until these are in quorum.
func (m mons) quorum(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%v in quorum", want), func() bool {
		// one that hangs, as beside a mon that has just left, is asked again
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, "ceph", "--conf", m.conf, "--connect-timeout", "15", "quorum_status", "--format",
			"json").Output()
		return err == nil && strings.Contains(string(out), `"quorum_names":["`+strings.Join(want, `","`)+`"]`)
	})
}

// addresses are those of the monmap.
func (m mons) addresses(t *testing.T) (all []string) {
	t.Helper()
	var dump struct {
		Mons []struct {
			Addrs string `json:"addr"`
		} `json:"mons"`
	}
	m.ask(t, &dump, "mon", "dump")
	for _, mon := range dump.Mons {
		all = append(all, mon.Addrs)
	}
	return all
}

// pod is the pod of a mon, or the next one as soon as it is on its way out.
func (m mons) pod(t *testing.T, name string) corev1.Pod {
	t.Helper()
	pods, err := m.client.CoreV1().Pods(rookNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "mon=" + name})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil {
			return pod
		}
	}
	return corev1.Pod{}
}

func (m mons) delete(t *testing.T, pod string) {
	t.Helper()
	if err := m.client.CoreV1().Pods(rookNamespace).Delete(t.Context(), pod, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (m mons) patchNode(t *testing.T, node, patch string) {
	t.Helper()
	_, err := m.client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
