package test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// timeout is for what takes a second at most on an idle machine. On a busy one a lab itself waits as long for what
// starts slowly.
const timeout = 5 * time.Minute

// namespace makes a namespace for a test, and waits until pods can be created in it.
func namespace(t *testing.T) string {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{}) // the lab goes anyway
	})
	eventually(t, "default service account", func() bool {
		_, err := client.CoreV1().ServiceAccounts(ns.Name).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	return ns.Name
}

// shell is a container that runs a script.
func shell(name, script string) corev1.Container {
	return corev1.Container{Name: name, Image: "none", Command: []string{"sh", "-c", script}}
}

// newPod is a pod that ends quickly when it is deleted.
func newPod(name string, containers ...corev1.Container) *corev1.Pod {
	grace := int64(2)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: containers, TerminationGracePeriodSeconds: &grace},
	}
}

func create(t *testing.T, ns string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	p, err := client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// await waits until a pod is as it should be, and returns it.
func await(t *testing.T, ns, name, what string, ok func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	defer func() {
		if t.Failed() && pod != nil {
			t.Logf("%s: %s %+v\n%s", name, pod.Status.Phase, pod.Status.ContainerStatuses, logs(t, ns, name))
		}
	}()
	eventually(t, name+" "+what, func() bool {
		p, err := client.CoreV1().Pods(ns).Get(t.Context(), name, metav1.GetOptions{})
		if err == nil {
			pod = p
		}
		return err == nil && ok(p)
	})
	return pod
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not in %s: %s", timeout, what)
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func succeeded(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded }

func inPhase(phase corev1.PodPhase) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool { return p.Status.Phase == phase }
}

func restarted(times int32) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].RestartCount >= times
	}
}

// deletePod deletes a pod and waits until it is gone; the result is how long that took.
func deletePod(t *testing.T, ns, name string) time.Duration {
	t.Helper()
	began := time.Now()
	if err := client.CoreV1().Pods(ns).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, name+" gone", func() bool {
		_, err := client.CoreV1().Pods(ns).Get(t.Context(), name, metav1.GetOptions{})
		return err != nil
	})
	return time.Since(began)
}

// logs are those of the first container.
func logs(t *testing.T, ns, name string) string {
	t.Helper()
	b, err := client.CoreV1().Pods(ns).GetLogs(name, &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// run runs a command in the first container of a pod.
func run(t *testing.T, ns, name string, args ...string) string {
	t.Helper()
	request := client.CoreV1().RESTClient().Post().Namespace(ns).Resource("pods").Name(name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: args, Stdout: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewSPDYExecutor(config, "POST", request.URL())
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Writer(&out)}); err != nil {
		t.Fatalf("%v in %s: %v", args, name, err)
	}
	return strings.TrimSpace(out.String())
}
