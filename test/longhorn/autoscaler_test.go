package longhorn

import (
	"crypto/rand"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/test/turns"
)

// What the pods of the proposal's test plan ask for, and how much of it a node has.
const (
	requested = 150  // millicpu
	allocable = 2000 // millicpu
	// onEachNode is what a DaemonSet takes, so that beside it and an instance manager a node has room for seven pods.
	onEachNode = "600m"
)

// TestLonghornUnderTheAutoscaler is the test plan of Longhorn's proposal for the Cluster Autoscaler, with its requests,
// its formula and its numbers of nodes, and with lockkeeper as the one who decides what may go.
func TestLonghornUnderTheAutoscaler(t *testing.T) {
	turns.Await(t, "Longhorn under the Cluster Autoscaler", 6)
	turns.Need(t, "the real Cluster Autoscaler", filepath.Join(filepath.Dir(lab), "cluster-autoscaler"), "autoscaler")
	w := start(t, "--node-cpus=2")
	k := w.moveIn()
	defer k.stop()
	w.set("kubernetes-cluster-autoscaler-enabled", "true")
	w.takeOfEachNode()
	original := len(w.readyNodes())
	fits := fill(original) / 2
	w.fill(fits)
	w.lab("autoscaler", "start", "--node-group", "zone-x=0:4", "--node-group", "zone-y=0:4", "--node-group", "zone-z=0:4",
		"--autoscaler-flag", "scale-down-utilization-threshold=0.99")
	t.Cleanup(func() { w.lab("autoscaler", "stop") })

	t.Log("scenario: test CA")
	began := time.Now()
	w.fill(fill(original))
	w.awaitNodes(2 * original)
	t.Logf("twice as many nodes after %s", time.Since(began).Round(time.Second))
	began = time.Now()
	w.fill(fits)
	w.awaitNodes(original)
	t.Logf("as many as before after %s", time.Since(began).Round(time.Second))

	t.Log("scenario: test CA scale down all nodes containing volume replicas")
	old := w.readyNodes()
	w.awaitSchedulable(len(old))
	data := make([]byte, 8<<20)
	_, err := rand.Read(data)
	require.NoError(t, err)
	w.lab("volume", "create", "data", "--replicas", "3", "--size", "8Mi")
	w.lab("volume", "attach", "data", old[0])
	w.writeVolume("data", data)
	w.lab("volume", "detach", "data")
	w.fill(fill(original))
	w.awaitNodes(2 * original)
	var added []string
	for _, n := range w.readyNodes() {
		if !slices.Contains(old, n) {
			added = append(added, n)
			w.annotate(n, "cluster-autoscaler.kubernetes.io/scale-down-disabled", "true")
		}
	}
	began = time.Now()
	w.fill(0)
	left := w.awaitNodes(original + 1)
	t.Logf("the original number of nodes and one that is blocked after %s: %v", time.Since(began).Round(time.Second), left)
	time.Sleep(20 * time.Second) // the autoscaler looks every 200 ms
	require.Equal(t, left, w.readyNodes(), "the last healthy replica of a volume went")

	w.lab("volume", "attach", "data", added[0])
	require.Equal(t, data, w.readVolume("data"), "the volume has other bytes")
	w.lab("volume", "detach", "data")
	began = time.Now()
	left = w.awaitNodes(original)
	t.Logf("the original number of nodes after %s", time.Since(began).Round(time.Second))
	require.ElementsMatch(t, added, left)
	w.lab("volume", "attach", "data", added[1])
	require.Equal(t, data, w.readVolume("data"), "the volume has other bytes")
	w.lab("volume", "detach", "data")
}

// fill is how many pods have the autoscaler double the number of nodes: the formula of the test plan.
func fill(nodes int) int32 {
	return int32(10 * math.Ceil(float64(allocable)/requested*float64(nodes)/10))
}

// takeOfEachNode is what else runs on every node.
func (w *world) takeOfEachNode() {
	w.Helper()
	labels := map[string]string{"app": "agent"}
	pod := filler(onEachNode)
	pod.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	require.NoError(w, w.Create(w.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "agent"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}))
}

func filler(cpu string) corev1.PodSpec {
	grace := int64(0)
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{
			Name: "main", Image: "pause", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("15Mi"),
				},
			},
		}},
	}
}

// fill has a Deployment with so many pods.
func (w *world) fill(pods int32) {
	w.Helper()
	labels := map[string]string{"app": "fill"}
	spec := filler("150m")
	spec.Containers[0].Resources.Limits = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("300m"), corev1.ResourceMemory: resource.MustParse("30Mi"),
	}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "fill"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &pods, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
	deployments := w.typed.AppsV1().Deployments(metav1.NamespaceDefault)
	if _, err := deployments.Get(w.Context(), "fill", metav1.GetOptions{}); err != nil {
		_, err = deployments.Create(w.Context(), d, metav1.CreateOptions{})
		require.NoError(w, err)
	} else {
		_, err = deployments.Update(w.Context(), d, metav1.UpdateOptions{})
		require.NoError(w, err)
	}
	w.awaitLong("its pods run", func() bool {
		d, err := deployments.Get(w.Context(), "fill", metav1.GetOptions{})
		require.NoError(w, err)
		return d.Status.ObservedGeneration == d.Generation && d.Status.ReadyReplicas == pods && d.Status.Replicas == pods
	})
}

// readyNodes are the names of the nodes that are ready, sorted.
func (w *world) readyNodes() (names []string) {
	w.Helper()
	list, err := w.typed.CoreV1().Nodes().List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	for _, n := range list.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				names = append(names, n.Name)
			}
		}
	}
	return names
}

func (w *world) awaitNodes(n int) []string {
	w.Helper()
	w.awaitLong("the number of nodes", func() bool { return len(w.readyNodes()) == n })
	return w.readyNodes()
}

// awaitSchedulable waits until Longhorn puts replicas on so many nodes.
func (w *world) awaitSchedulable(n int) {
	w.Helper()
	w.awaitLong("Longhorn's nodes", func() bool {
		pods, err := w.typed.CoreV1().Pods(namespace).List(w.Context(), metav1.ListOptions{LabelSelector: managers})
		require.NoError(w, err)
		return len(pods.Items) == n && w.running() == n
	})
}

func (w *world) annotate(node, key, value string) {
	w.Helper()
	_, err := w.typed.CoreV1().Nodes().Patch(w.Context(), node, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+key+`":"`+value+`"}}}`), patchOptions)
	require.NoError(w, err)
}

func (w *world) writeVolume(volume string, data []byte) {
	w.Helper()
	c := exec.CommandContext(w.Context(), lab, "volume", "write", volume)
	c.Stdin = strings.NewReader(string(data))
	out, err := c.CombinedOutput()
	require.NoError(w, err, "%s", out)
}

func (w *world) readVolume(volume string) []byte {
	w.Helper()
	out, err := exec.CommandContext(w.Context(), lab, "volume", "read", volume).Output()
	require.NoError(w, err)
	return out
}

// awaitLong is await for what takes an autoscaler and Longhorn several attempts.
func (w *world) awaitLong(what string, ok func() bool) {
	w.Helper()
	const longest = 5 * time.Minute
	for deadline := time.Now().Add(longest); !ok(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("not within %s: %s\n%s", longest, what, w.describe())
		}
	}
}
