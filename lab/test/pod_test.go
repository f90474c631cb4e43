package test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestContainersSeeTheirVolumesAndEnvironment(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	_, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "conf"}, Data: map[string]string{"a": "from-config", "b": "unwanted"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "keys"}, StringData: map[string]string{"key": "from-secret"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	onNode := corev1.HostPathDirectoryOrCreate
	fieldRef := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	initial := shell("init", "echo from-init > /lab-test/shared/f; echo from-host > /var/lib/lab-test/f")
	main := shell("main", `set -e
		cat /lab-test/shared/f /var/lib/lab-test/f /etc/lab-test/renamed /etc/lab-test-keys/key
		echo; ls /etc/lab-test; cat /etc/lab-test-info/name; echo
		echo "$GREETING|$S_key|$OPTIONAL|$ARG"
		test "$POD_IP" = "$(cat /etc/lab-test-info/ip 2>/dev/null || echo "$POD_IP")"
		test -s /var/run/secrets/kubernetes.io/serviceaccount/token
		(echo x > /etc/lab-test-keys/key) 2>/dev/null && echo writable
		hostname; exit 0`)
	optional := true
	main.Env = []corev1.EnvVar{
		{Name: "POD_IP", ValueFrom: fieldRef("status.podIP")},
		{Name: "WHO", ValueFrom: fieldRef("metadata.name")},
		{Name: "GREETING", Value: "hello $(WHO), not $$(WHO) or $(NOBODY)"},
		{Name: "OPTIONAL", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Key: "none", Optional: &optional,
		}}},
		{Name: "ARG", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}, Key: "a",
		}}},
	}
	main.EnvFrom = []corev1.EnvFromSource{
		{Prefix: "S_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}}},
	}
	initial.VolumeMounts = []corev1.VolumeMount{
		{Name: "shared", MountPath: "/lab-test/shared"},
		{Name: "host", MountPath: "/var/lib/lab-test"},
	}
	main.VolumeMounts = append(initial.VolumeMounts,
		corev1.VolumeMount{Name: "conf", MountPath: "/etc/lab-test"},
		corev1.VolumeMount{Name: "keys", MountPath: "/etc/lab-test-keys", ReadOnly: true},
		corev1.VolumeMount{Name: "info", MountPath: "/etc/lab-test-info"})
	pod := newPod("pod", main)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.InitContainers = []corev1.Container{initial}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "host", VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/lab-test-host", Type: &onNode},
		}},
		{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}}},
		{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "conf"},
			Items:                []corev1.KeyToPath{{Key: "a", Path: "renamed"}},
		}}},
		{Name: "info", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{
				{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}},
			},
		}}},
	}
	create(t, ns, pod)
	await(t, ns, "pod", "succeeded", succeeded)
	want := []string{
		"from-init", "from-host", "from-configfrom-secret", "renamed", "pod",
		"hello pod, not $(WHO) or $(NOBODY)|from-secret||from-config", "pod",
	}
	if got := strings.TrimSpace(logs(t, ns, "pod")); got != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

func TestRestartPolicies(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	pod := func(name, script string, policy corev1.RestartPolicy) {
		p := newPod(name, shell("main", script))
		p.Spec.RestartPolicy = policy
		create(t, ns, p)
	}
	pod("never", "exit 3", corev1.RestartPolicyNever)
	pod("on-failure", "test -e done || { touch done; exit 1; }", corev1.RestartPolicyOnFailure)
	pod("always", "exit 0", corev1.RestartPolicyAlways)
	bad := newPod("no-such-program", corev1.Container{Name: "main", Image: "none", Command: []string{"/no/such/program"}})
	bad.Spec.RestartPolicy = corev1.RestartPolicyNever
	create(t, ns, bad)
	broken := newPod("init-fails", shell("main", "sleep 600"))
	broken.Spec.InitContainers = []corev1.Container{shell("init", "exit 7")}
	broken.Spec.RestartPolicy = corev1.RestartPolicyNever
	create(t, ns, broken)

	p := await(t, ns, "never", "failed", inPhase(corev1.PodFailed))
	if s := p.Status.ContainerStatuses[0].State.Terminated; s.ExitCode != 3 || s.Reason != "Error" {
		t.Errorf("got %+v", s)
	}
	p = await(t, ns, "on-failure", "succeeded", succeeded)
	if n := p.Status.ContainerStatuses[0].RestartCount; n != 1 {
		t.Errorf("%d restarts, want 1", n)
	}
	await(t, ns, "always", "restarted", restarted(2))
	p = await(t, ns, "no-such-program", "failed", inPhase(corev1.PodFailed))
	if s := p.Status.ContainerStatuses[0].State.Terminated; s.Reason != "StartError" {
		t.Errorf("got %+v", s)
	}
	p = await(t, ns, "init-fails", "failed", inPhase(corev1.PodFailed))
	if s := p.Status.ContainerStatuses[0].State; s.Waiting == nil {
		t.Errorf("the main container was started: %+v", s)
	}
}

// TestUnknownImage: a pod whose image is not to be had waits, as a user would see it, and says which images there are.
func TestUnknownImage(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	c := shell("main", "sleep 600")
	c.Image = "lab/ceph:19"
	create(t, ns, newPod("pod", c))
	p := await(t, ns, "pod", "waiting for its image", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
			p.Status.ContainerStatuses[0].State.Waiting.Reason == "ErrImagePull"
	})
	w := p.Status.ContainerStatuses[0].State.Waiting
	if p.Status.Phase != corev1.PodPending || !strings.Contains(w.Message, "lab/ceph:19") ||
		!strings.Contains(w.Message, "lab/ceph:20") {
		t.Errorf("%s: %+v", p.Status.Phase, w)
	}
}

func TestProbesDecide(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	exec := func(script string) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", script}}},
			PeriodSeconds: 1, FailureThreshold: 1,
		}
	}
	main := shell("main", "touch alive; sleep 600")
	main.ReadinessProbe, main.LivenessProbe = exec("cat ready"), exec("test -e alive")
	main.StartupProbe = exec("test -e alive")
	main.StartupProbe.FailureThreshold = 10
	web := shell("web", "exec python3 -m http.server --bind $POD_IP 8080")
	web.Env = []corev1.EnvVar{{
		Name:      "POD_IP",
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}},
	}}
	web.Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}
	web.ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromString("web")}},
	}
	create(t, ns, newPod("pod", main))
	create(t, ns, newPod("web-1", web))
	create(t, ns, newPod("web-2", web)) // same port, another address

	p := await(t, ns, "pod", "started", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 && *p.Status.ContainerStatuses[0].Started
	})
	if ready(p) {
		t.Error("ready although its probe says no")
	}
	run(t, ns, "pod", "touch", "ready")
	await(t, ns, "pod", "ready", ready)
	run(t, ns, "pod", "rm", "ready")
	await(t, ns, "pod", "not ready", func(p *corev1.Pod) bool { return !ready(p) })
	eventually(t, "an event with what the probe said", func() bool {
		events, err := client.CoreV1().Events(ns).List(t.Context(),
			metav1.ListOptions{FieldSelector: "reason=Unhealthy,involvedObject.name=pod"})
		return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Message == "Readiness probe failed: cat: ready: No such file or directory (exit status 1)"
		})
	})
	run(t, ns, "pod", "rm", "alive")
	await(t, ns, "pod", "restarted", restarted(1))
	await(t, ns, "web-1", "ready", ready)
	await(t, ns, "web-2", "ready", ready)
}

func TestTerminationIsGraceful(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	claim := createClaim(t, ns, "claim")
	write := corev1.VolumeMount{Name: "data", MountPath: "/data"}
	// Not a shell that waits for its child: that would only see the signal afterwards.
	polite := shell("main", "trap 'echo term >> /data/log; exit 0' TERM; touch /data/up; while :; do sleep 0.05; done")
	polite.VolumeMounts = []corev1.VolumeMount{write}
	polite.Lifecycle = &corev1.Lifecycle{
		PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "echo hook >> /data/log"}}},
	}
	polite.ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", "/data/up"}}},
	}
	pod := newPod("polite", polite)
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}},
	}
	long := int64(2 * 60)
	pod.Spec.TerminationGracePeriodSeconds = &long
	create(t, ns, pod)
	await(t, ns, "polite", "ready", ready)
	if took := deletePod(t, ns, "polite"); took > time.Minute {
		t.Errorf("took %s: it was not told to end, or not before its grace period was over", took)
	}
	deaf := shell("main", "trap '' TERM; touch up; setsid sleep 600 & while :; do sleep 0.05; done")
	// Ready only once the trap is set: a signal before that would end it at once.
	deaf.ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", "up"}}},
	}
	create(t, ns, newPod("stubborn", deaf))
	await(t, ns, "stubborn", "ready", ready)
	if took := deletePod(t, ns, "stubborn"); took < 1900*time.Millisecond || took > 20*time.Second {
		t.Errorf("took %s, want its grace period of 2 s", took)
	}
	// The volume outlives the pod, and says what happened.
	reader := newPod("reader", shell("main", "cat /data/log"))
	reader.Spec.RestartPolicy = corev1.RestartPolicyNever
	reader.Spec.Containers[0].VolumeMounts, reader.Spec.Volumes = []corev1.VolumeMount{write}, pod.Spec.Volumes
	create(t, ns, reader)
	await(t, ns, "reader", "succeeded", succeeded)
	if got := logs(t, ns, "reader"); got != "hook\nterm\n" {
		t.Errorf("got %q", got)
	}
}

func createClaim(t *testing.T, ns, name string) string {
	t.Helper()
	_, err := client.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return name
}
