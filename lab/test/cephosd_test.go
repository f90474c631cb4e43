package test

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestOSDsRunFromACephOSD is what an operator of CephOSDs does, by hand.
func TestOSDsRunFromACephOSD(t *testing.T) {
	awaitTurn(t, 3)
	t.Cleanup(func() { mustLab(t, "down", "--name", cephLab) })
	mustLab(t, "up", "--name", cephLab, "--nodes-per-zone", "1", "--osds-per-node", "2", "--osd-pods=none",
		"--temporal=false")
	c := connectCeph(t)
	if out := mustLab(t, "status", "--name", cephLab); !regexp.MustCompile(cephLab + ` +up `).MatchString(out) {
		t.Fatal(out)
	}
	if pods := c.osdPods(t); len(pods) != 0 {
		t.Fatalf("OSD pods that nobody asked for: %v", pods)
	}
	osds := readCephOSD(t)
	if len(osds) != 6 {
		t.Fatalf("%d OSDs", len(osds))
	}
	t.Run("created", func(t *testing.T) { c.createOSDs(t, osds) })
	t.Run("known to Ceph", func(t *testing.T) { c.knows(t, osds) })
	t.Run("replaced", func(t *testing.T) { c.replace(t, osds[3]) })
	t.Run("restarted", func(t *testing.T) {
		mustLab(t, "down", "--name", cephLab, "--keep")
		mustLab(t, "up", "--name", cephLab) // healthy without them, and they come by themselves
		for id, pod := range osds {
			eventually(t, pod.Name+" is up again", func() bool { return c.ready(t, pod.Name) && c.up(t, id) })
		}
	})
	t.Run("two on one device", func(t *testing.T) { c.crowd(t, osds[0]) })
}

// readCephOSD makes the pods of the manifest that `lab env` names, in the order of the OSDs' numbers.
func readCephOSD(t *testing.T) (pods []*corev1.Pod) {
	t.Helper()
	file := regexp.MustCompile(`export CEPHOSD='(.*)'`).FindStringSubmatch(mustLab(t, "env", "--name", cephLab))
	if file == nil {
		t.Fatal("lab env names no CephOSD")
	}
	b, err := os.ReadFile(file[1])
	if err != nil {
		t.Fatal(err)
	}
	var o struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta
		Spec            struct {
			Storage []struct {
				Hosts []string
				OSDs  []struct{ Data string }
			}
			PodTemplate corev1.PodTemplateSpec
		}
	}
	if err := yaml.Unmarshal(b, &o); err != nil {
		t.Fatal(err)
	}
	if o.APIVersion != "ceph.elemental.net/v1alpha1" || o.Kind != "CephOSD" || o.Metadata.Namespace != rookNamespace {
		t.Fatalf("%s %s in %s", o.APIVersion, o.Kind, o.Metadata.Namespace)
	}
	for _, s := range o.Spec.Storage {
		for _, host := range s.Hosts {
			for _, osd := range s.OSDs {
				pods = append(pods, osdPod(&o.Spec.PodTemplate, o.Metadata.Name, host, osd.Data))
			}
		}
	}
	return pods
}

// osdPod adds to a template what makes it one OSD's.
func osdPod(template *corev1.PodTemplateSpec, owner, host, device string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	pod.Name = "osd-" + host + "-" + path.Base(device)
	pod.Labels["ceph.elemental.net/owner"] = "CephOSD-" + owner
	pod.Annotations = map[string]string{"ceph.elemental.net/host": host, "ceph.elemental.net/data": device}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn,
				Values: []string{host},
			}},
		}}},
	}}
	osd := &pod.Spec.Containers[0]
	osd.Env = append(osd.Env, corev1.EnvVar{Name: "OSD_DEVICE", Value: device})
	return pod
}

func (c ceph) osdPods(t *testing.T) []corev1.Pod {
	t.Helper()
	pods, err := c.client.CoreV1().Pods(rookNamespace).List(t.Context(),
		metav1.ListOptions{LabelSelector: "app in (ceph-osd,rook-ceph-osd)"})
	if err != nil {
		t.Fatal(err)
	}
	return pods.Items
}

func (c ceph) createPod(t *testing.T, pod *corev1.Pod) time.Time {
	t.Helper()
	if _, err := c.client.CoreV1().Pods(rookNamespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return time.Now()
}

// deletePod waits until a pod is gone, and tells how long that took.
func (c ceph) deletePod(t *testing.T, name string) time.Duration {
	t.Helper()
	began := time.Now()
	pods := c.client.CoreV1().Pods(rookNamespace)
	if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, name+" is gone", func() bool {
		_, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	return time.Since(began)
}

func (c ceph) ready(t *testing.T, name string) bool {
	t.Helper()
	pod, err := c.client.CoreV1().Pods(rookNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ready(pod)
}

func (c ceph) createOSDs(t *testing.T, osds []*corev1.Pod) {
	began := time.Now()
	for _, pod := range osds {
		c.createPod(t, pod)
	}
	for _, pod := range osds {
		eventually(t, pod.Name+" is ready", func() bool { return c.ready(t, pod.Name) })
	}
	t.Logf("%d OSDs ready after %s", len(osds), time.Since(began).Round(10*time.Millisecond))
	for id := range osds {
		if !c.up(t, id) {
			t.Errorf("osd.%d is ready, but Ceph does not say that it is up", id)
		}
	}
	eventually(t, "HEALTH_OK", func() bool {
		var status struct {
			Health struct{ Status string }
			PGMap  struct {
				PGs    int `json:"num_pgs"`
				States []struct {
					Name string `json:"state_name"`
				} `json:"pgs_by_state"`
			}
		}
		c.ask(t, &status, "status")
		return status.Health.Status == "HEALTH_OK" && status.PGMap.PGs > 0 &&
			len(status.PGMap.States) == 1 && status.PGMap.States[0].Name == "active+clean"
	})
	t.Logf("HEALTH_OK after %s", time.Since(began).Round(10*time.Millisecond))
}

// knows asks Ceph which pod, node and device an OSD is, from which others learn the numbers of the pods.
func (c ceph) knows(t *testing.T, osds []*corev1.Pod) {
	type metadata struct {
		ID        int
		PodName   string `json:"pod_name"`
		Namespace string `json:"pod_namespace"`
		Hostname  string
		Data      string `json:"osd_data"`
	}
	var got, want []metadata
	c.ask(t, &got, "osd", "metadata")
	for id, pod := range osds {
		want = append(want, metadata{
			id, pod.Name, rookNamespace, pod.Annotations["ceph.elemental.net/host"], pod.Annotations["ceph.elemental.net/data"],
		})
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	var tree struct {
		Nodes []struct {
			Type, Name string
			Children   []int
		}
	}
	c.ask(t, &tree, "osd", "tree")
	for _, n := range tree.Nodes {
		if n.Type == "host" && n.Name == "node-b" && !slices.Contains(n.Children, 2) {
			t.Errorf("starting it moved osd.2 in the CRUSH map: node-b has %v", n.Children)
		}
	}
}

// replace is an update of one OSD.
func (c ceph) replace(t *testing.T, pod *corev1.Pod) {
	const id = 3
	before := c.dump(t).OSDs[id].UpFrom
	gone := c.deletePod(t, pod.Name)
	eventually(t, "it is down in Ceph", func() bool { return !c.up(t, id) })
	next := pod.DeepCopy()
	for i, v := range next.Spec.Containers[0].Env {
		if v.Name == "UPDATE" {
			next.Spec.Containers[0].Env[i].Value = "1"
		}
	}
	began := c.createPod(t, next)
	eventually(t, "its successor is ready", func() bool { return c.ready(t, pod.Name) })
	took := time.Since(began)
	if after := c.dump(t).OSDs[id]; after.Up != 1 || after.UpFrom <= before {
		t.Errorf("%+v, and before up from %d", after, before)
	}
	t.Logf("deleted → gone: %s, created → ready: %s", gone.Round(10*time.Millisecond), took.Round(10*time.Millisecond))
}

// crowd starts a second pod on a device that is in use: it has to wait, and to say so.
func (c ceph) crowd(t *testing.T, pod *corev1.Pod) {
	second := pod.DeepCopy()
	second.Name += "-second"
	c.createPod(t, second)
	eventually(t, "the second waits", func() bool {
		b, err := c.client.CoreV1().Pods(rookNamespace).GetLogs(second.Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
		return err == nil && strings.Contains(string(b), "osd.0: /dev/lab/osd-0 is in use by another daemon")
	})
	time.Sleep(time.Second) // enough for its probe to take the first one's socket for its own
	if c.ready(t, second.Name) || !c.ready(t, pod.Name) {
		t.Error("the second took the first one's place")
	}
	c.deletePod(t, pod.Name)
	eventually(t, "the second is ready", func() bool { return c.ready(t, second.Name) })
}
