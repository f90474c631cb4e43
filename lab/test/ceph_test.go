package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	cephLab       = "ceph"
	rookNamespace = "rook-ceph"
)

// TestEvictionStopsARealOSD drains the node of an OSD under load, brings it back, and starts the whole lab again.
func TestEvictionStopsARealOSD(t *testing.T) {
	if _, err := exec.LookPath("ceph"); err != nil {
		t.Fatal("Ceph is not installed: run make packages")
	}
	up := []string{"up", "--name", cephLab, "--nodes-per-zone", "1", "--temporal=false"}
	mustLab(t, up...)
	t.Cleanup(func() { mustLab(t, "down", "--name", cephLab) })
	c := connectCeph(t)
	fsid := c.dump(t).FSID

	mustLab(t, "load", "start", "--name", cephLab)
	t.Run("evicted", c.evict)
	t.Run("returned", c.giveBack)
	t.Run("load", func(t *testing.T) {
		var report struct {
			Writes      int `json:"writes"`
			FailedWrite int `json:"failed_writes"`
			LostWrites  int `json:"lost_writes"`
			Stall       int `json:"longest_stall_ms"`
		}
		out := mustLab(t, "load", "stop", "--name", cephLab, "-o", "json")
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if report.Writes == 0 || report.FailedWrite != 0 || report.LostWrites != 0 {
			t.Errorf("%+v", report)
		}
		t.Logf("%+v", report)
	})
	t.Run("restarted", func(t *testing.T) {
		mustLab(t, "down", "--name", cephLab, "--keep")
		start := time.Now()
		mustLab(t, up...)
		t.Logf("up again after %s", time.Since(start).Round(100*time.Millisecond))
		if again := c.dump(t).FSID; again != fsid {
			t.Errorf("another cluster: %s instead of %s", again, fsid)
		}
		if n := c.objects(t); n == 0 {
			t.Error("the load's objects are gone")
		}
	})
}

// ceph is a lab's Ceph and the Kubernetes on which it runs.
type ceph struct {
	client kubernetes.Interface
	conf   string
}

func connectCeph(t *testing.T) ceph {
	t.Helper()
	kubeconfig := strings.TrimSpace(mustLab(t, "kubeconfig", "--name", cephLab))
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return ceph{client, strings.TrimSuffix(kubeconfig, "kubeconfig") + "ceph/ceph.conf"}
}

// ask runs a command as the administrator.
func (c ceph) ask(t *testing.T, answer any, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ceph", append([]string{"--conf", c.conf, "--format", "json"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ceph %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	if err := json.Unmarshal(out, answer); err != nil {
		t.Fatalf("ceph %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

type osdDump struct {
	FSID string `json:"fsid"`
	OSDs []struct {
		ID     int `json:"osd"`
		Up     int `json:"up"`
		UpFrom int `json:"up_from"`
	} `json:"osds"`
}

func (c ceph) dump(t *testing.T) (d osdDump) {
	t.Helper()
	c.ask(t, &d, "osd", "dump")
	return d
}

func (c ceph) up(t *testing.T, id int) bool {
	t.Helper()
	return c.dump(t).OSDs[id].Up == 1
}

func (c ceph) objects(t *testing.T) int {
	t.Helper()
	var status struct {
		PGMap struct {
			Objects int `json:"num_objects"`
		} `json:"pgmap"`
	}
	c.ask(t, &status, "status")
	return status.PGMap.Objects
}

// evict cordons node-a and evicts osd.0 from it.
func (c ceph) evict(t *testing.T) {
	c.cordon(t, true)
	pod := c.osdPod(t)
	err := c.client.PolicyV1().Evictions(rookNamespace).Evict(t.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: rookNamespace},
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "osd.0 is down in Ceph", func() bool { return !c.up(t, 0) })
	eventually(t, "its replacement is Pending on the cordoned node", func() bool {
		next := c.osdPod(t)
		return next.UID != pod.UID && next.Status.Phase == corev1.PodPending && next.Spec.NodeName == ""
	})
}

func (c ceph) giveBack(t *testing.T) {
	c.cordon(t, false)
	eventually(t, "osd.0 is up in Ceph", func() bool { return c.up(t, 0) })
	eventually(t, "all placement groups are clean", func() bool {
		var stat struct {
			Summary struct {
				States []struct {
					Name string `json:"name"`
				} `json:"num_pg_by_state"`
			} `json:"pg_summary"`
		}
		c.ask(t, &stat, "pg", "stat")
		return len(stat.Summary.States) == 1 && stat.Summary.States[0].Name == "active+clean"
	})
}

func (c ceph) cordon(t *testing.T, unschedulable bool) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, unschedulable)
	_, err := c.client.CoreV1().Nodes().Patch(t.Context(), "node-a", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// osdPod is the pod of osd.0, or its replacement as soon as it is on its way out.
func (c ceph) osdPod(t *testing.T) corev1.Pod {
	t.Helper()
	pods, err := c.client.CoreV1().Pods(rookNamespace).List(t.Context(),
		metav1.ListOptions{LabelSelector: "app=rook-ceph-osd,ceph-osd-id=0"})
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
