package autoscaler

import (
	"crypto/rand"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/test/scaling"
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
// its formula and its numbers of nodes, and with lockkeeper as the one who decides what may go. Its third scenario is
// TestBackingImageUnderTheAutoscaler.
func TestLonghornUnderTheAutoscaler(t *testing.T) {
	w := withLonghorn(t, "Longhorn under the Cluster Autoscaler", 3*time.Minute)
	original := len(w.Nodes())
	fits := fill(original) / 2
	w.fill(fits)
	w.scales()

	t.Log("scenario: test CA")
	began := time.Now()
	w.fill(fill(original))
	w.AwaitNodes(2 * original)
	t.Logf("twice as many nodes after %s", time.Since(began).Round(time.Second))
	began = time.Now()
	w.fill(fits)
	w.AwaitNodes(original)
	t.Logf("as many as before after %s", time.Since(began).Round(time.Second))

	t.Log("scenario: test CA scale down all nodes containing volume replicas")
	old := w.Nodes()
	w.Await("Longhorn is on each of them", func() bool { return len(w.Managers()) == len(old) })
	data := random(t, 8<<20)
	w.Lab("volume", "create", "data", "--replicas", "3", "--size", "8Mi")
	w.Lab("volume", "attach", "data", old[0])
	w.LabWith(string(data), "volume", "write", "data")
	w.Lab("volume", "detach", "data")
	added := w.addNodesThatStay(old)
	began = time.Now()
	w.fill(0)
	left := w.AwaitNodes(original + 1)
	t.Logf("the original number of nodes and one that is blocked after %s: %v", time.Since(began).Round(time.Second), left)
	w.stays(left, "the last healthy replica of a volume went")

	w.Lab("volume", "attach", "data", added[0])
	require.True(t, string(data) == w.Lab("volume", "read", "data"), "the volume has other bytes")
	w.Lab("volume", "detach", "data")
	began = time.Now()
	left = w.AwaitNodes(original)
	t.Logf("the original number of nodes after %s", time.Since(began).Round(time.Second))
	require.ElementsMatch(t, added, left)
	w.Lab("volume", "attach", "data", added[1])
	require.True(t, string(data) == w.Lab("volume", "read", "data"), "the volume has other bytes")
	w.Lab("volume", "detach", "data")
}

// withLonghorn is three nodes of Longhorn and lockkeeper, with the autoscaler's setting on.
func withLonghorn(t *testing.T, what string, takes time.Duration) world {
	t.Helper()
	turns.Await(t, what, takes)
	turns.Need(t, what, "../../lab/bin/longhorn/longhorn-manager", "longhorn")
	w := world{scaling.Start(t, autoscaler, "--longhorn", "--temporal", "--nodes-per-zone=1", "--node-cpus=2")}
	w.MoveIn("--longhorn")
	w.SetLonghorn("Setting", "kubernetes-cluster-autoscaler-enabled", `{"value":"true"}`)
	w.takeOfEachNode()
	return w
}

// scales has the autoscaler begin: any node may go.
func (w world) scales() {
	w.Helper()
	w.Lab("autoscaler", "start", "--node-group", "zone-x=0:4", "--node-group", "zone-y=0:4", "--node-group", "zone-z=0:4",
		"--autoscaler-flag", "scale-down-utilization-threshold=0.99")
	w.Cleanup(func() { w.Lab("autoscaler", "stop") })
}

// addNodesThatStay has the autoscaler double the number of nodes, and keeps the new ones.
func (w world) addNodesThatStay(old []string) (added []string) {
	w.Helper()
	w.fill(fill(len(old)))
	w.AwaitNodes(2 * len(old))
	for _, n := range w.Nodes() {
		if !slices.Contains(old, n) {
			added = append(added, n)
			w.Annotate(n, scaleDownDisabled, "true")
		}
	}
	return added
}

// stays: the autoscaler, which looks every 200 ms, leaves the nodes as they are.
func (w world) stays(nodes []string, otherwise string) {
	w.Helper()
	time.Sleep(20 * time.Second)
	require.Equal(w, nodes, w.Nodes(), otherwise)
}

func random(t *testing.T, bytes int) []byte {
	t.Helper()
	data := make([]byte, bytes)
	_, err := rand.Read(data)
	require.NoError(t, err)
	return data
}

// fill is how many pods have the autoscaler double the number of nodes: the formula of the test plan.
func fill(nodes int) int32 {
	return int32(10 * math.Ceil(float64(allocable)/requested*float64(nodes)/10))
}

// takeOfEachNode is what else runs on every node.
func (w world) takeOfEachNode() {
	w.Helper()
	labels := map[string]string{"app": "agent"}
	pod := filler(onEachNode)
	pod.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	pod.PriorityClassName = "system-node-critical" // a new node may have been filled before
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
func (w world) fill(pods int32) {
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
	deployments := w.Typed.AppsV1().Deployments(metav1.NamespaceDefault)
	if _, err := deployments.Get(w.Context(), "fill", metav1.GetOptions{}); err != nil {
		_, err = deployments.Create(w.Context(), d, metav1.CreateOptions{})
		require.NoError(w, err)
	} else {
		_, err = deployments.Update(w.Context(), d, metav1.UpdateOptions{})
		require.NoError(w, err)
	}
	w.Await("its pods run", func() bool {
		d, err := deployments.Get(w.Context(), "fill", metav1.GetOptions{})
		require.NoError(w, err)
		return d.Status.ObservedGeneration == d.Generation && d.Status.ReadyReplicas == pods && d.Status.Replicas == pods
	})
}
