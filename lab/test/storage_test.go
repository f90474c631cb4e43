package test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// claimOf makes a claim of a class.
func claimOf(t *testing.T, ns, class string) {
	t.Helper()
	_, err := client.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// user is a pod in a zone that has the claim of a class.
func user(name, class, zone string) *corev1.Pod {
	pod := newPod(name, shell("main", "sleep 600"))
	pod.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: zone}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: class},
	}}}
	return pod
}

func claim(t *testing.T, ns, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	c, err := client.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eventSays tells whether something was said of an object.
func eventSays(t *testing.T, ns, object, want string) bool {
	t.Helper()
	events, err := client.CoreV1().Events(ns).List(t.Context(),
		metav1.ListOptions{FieldSelector: "involvedObject.name=" + object})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if strings.Contains(e.Message, want) {
			return true
		}
	}
	return false
}

// TestStaticVolumes: the scheduler finds one in the pod's zone. One that was released waits for a person.
func TestStaticVolumes(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	claimOf(t, ns, "static-disk")
	create(t, ns, user("pod", "static-disk", "zone-y"))
	await(t, ns, "pod", "ready", ready)
	name := claim(t, ns, "static-disk").Spec.VolumeName
	if !strings.HasPrefix(name, "static-zone-y-") {
		t.Errorf("the volume is %s", name)
	}
	deletePod(t, ns, "pod")
	err := client.CoreV1().PersistentVolumeClaims(ns).Delete(t.Context(), "static-disk", metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "released", func() bool {
		v, err := client.CoreV1().PersistentVolumes().Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && v.Status.Phase == corev1.VolumeReleased
	})
}

// TestImmediateVolumeIsInAnyZone: its pod may never start.
func TestImmediateVolumeIsInAnyZone(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	claimOf(t, ns, "immediate-disk")
	eventually(t, "bound without a pod", func() bool {
		return claim(t, ns,
			"immediate-disk").Status.Phase == corev1.ClaimBound
	})
	v, err := client.CoreV1().PersistentVolumes().Get(t.Context(), claim(t, ns, "immediate-disk").Spec.VolumeName,
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	zone := v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
	other := map[bool]string{true: "zone-y", false: "zone-x"}[zone == "zone-x"]
	create(t, ns, user("pod", "immediate-disk", other))
	eventually(t, "it is said that it fits nowhere", func() bool {
		return eventSays(t, ns, "pod", "PersistentVolume's node affinity")
	})
}

// TestBrokenStorage: nothing is made, nothing is mounted, and whoever has mounted goes on, until it is mended.
func TestBrokenStorage(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	claimOf(t, ns, "node-disk")
	create(t, ns, user("before", "node-disk", "zone-x"))
	await(t, ns, "before", "ready", ready)
	fault(t, "storage-break", "node-disk")
	t.Cleanup(func() { mustLab(t, "fault", "--name", labName, "storage-mend", "node-disk") })

	create(t, ns, user("second", "node-disk", "zone-x"))
	const why = "the storage of class node-disk does not answer"
	eventually(t, "not mounted", func() bool { return eventSays(t, ns, "second", why) })
	other := namespace(t)
	claimOf(t, other, "node-disk")
	create(t, other, user("third", "node-disk", "zone-x"))
	eventually(t, "not made", func() bool { return eventSays(t, other, "node-disk", why) })
	if !ready(await(t, ns, "before", "there", func(*corev1.Pod) bool { return true })) {
		t.Error("who had mounted before is not ready any more")
	}

	fault(t, "storage-mend", "node-disk")
	await(t, ns, "second", "ready", ready)
	await(t, other, "third", "ready", ready)
}

// TestService: pods find another one by the address of its Service, whatever its own is.
func TestService(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	labels := map[string]string{"who": "server"}
	s, err := client.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "service"},
		Spec: corev1.ServiceSpec{
			Selector: labels, Ports: []corev1.ServicePort{{Port: 7000, TargetPort: intstr.FromInt32(8000)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	server := newPod("server", shell("main", `exec perl -MIO::Socket::INET -e '
		$s = IO::Socket::INET->new(Listen => 5, LocalAddr => "$ENV{IP}:8000",
			ReuseAddr => 1) or die; while ($c = $s->accept) {}'`))
	server.Labels = labels
	server.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "IP", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"},
	}}}
	server.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
		TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8000)},
	}}
	create(t, ns, server)
	asks := newPod("asks", shell("main",
		"until (exec 3<>/dev/tcp/"+s.Spec.ClusterIP+"/7000) 2>/dev/null; do sleep 0.1; done; echo served"))
	asks.Spec.RestartPolicy = corev1.RestartPolicyNever
	asks.Spec.Containers[0].Command[0] = "bash"
	create(t, ns, asks)
	await(t, ns, "asks", "served", succeeded)
}
