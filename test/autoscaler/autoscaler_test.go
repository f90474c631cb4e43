package autoscaler

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lockkeeper/lockkeeper/test/turns"
)

// often is in how many commits a test has its turn once, on average.
const often = 6

// anyNode lets every node go, and as many come as Longhorn has ports for; a drain is given up after one attempt.
var anyNode = []string{
	"--node-group", "zone-x=0:6", "--node-group", "zone-y=0:6", "--node-group", "zone-z=0:6",
	"--autoscaler-flag", "max-pod-eviction-time=1s",
}

// TestClusterAutoscaler has each of six nodes in another situation when the autoscaler first looks at them, and then
// has more pods than there is room for.
func TestClusterAutoscaler(t *testing.T) {
	turns.Await(t, "the real Cluster Autoscaler", often)
	w := start(t, "--nodes-per-zone=2")
	// node-a is empty.
	w.place("node-b", nil, "budget")
	w.forbid("budget")
	w.place("node-c", map[string]string{safeToEvict: "true"}, "promised")
	w.forbid("promised")
	w.annotate("node-d", scaleDownDisabled, "true")
	w.placeBare("node-e")
	w.place("node-f", map[string]string{safeToEvict: "true"}, "local")

	w.lab(append([]string{"autoscaler", "start"}, anyNode...)...)
	w.await("the empty node goes", func() bool { return w.journal.has("node-a", gone) })
	w.await("the node whose pods may go goes", func() bool { return w.journal.has("node-f", gone) })
	w.await("the node of the budget that counts only when its pod is evicted is tainted and stays", func() bool {
		return w.journal.has("node-c", rolled)
	})
	w.Logf("taint to deletion: empty %s, drained %s; taint to rollback %s", w.journal.between("node-a", tainted, gone),
		w.journal.between("node-f", tainted, gone), w.journal.between("node-c", tainted, rolled))
	for _, node := range []string{"node-b", "node-d", "node-e"} {
		require.False(t, w.journal.has(node, tainted), node)
	}
	require.NoDirExists(t, w.folder("node-f"))
	require.DirExists(t, w.folder("node-b"))

	// Its pod gone, nothing keeps it.
	require.NoError(t, w.typed.AppsV1().ReplicaSets(metav1.NamespaceDefault).Delete(t.Context(), "promised",
		metav1.DeleteOptions{}))
	require.Equal(t, []string{"node-b", "node-d", "node-e"}, w.awaitNodes(3))

	w.scaleUpAndDown()
	for _, node := range []string{"node-b", "node-d", "node-e"} {
		require.False(t, w.journal.has(node, tainted), node)
	}
	w.lab("autoscaler", "stop")
}

// scaleUpAndDown has two more pods than three nodes have room for, and then none.
func (w *world) scaleUpAndDown() {
	w.Helper()
	began := time.Now()
	big := w.replicaSet("big", 5, nil)
	big.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("9"),
	}
	require.NoError(w, w.Create(w.Context(), big))
	for _, node := range w.awaitNodes(5) {
		if w.journal.when(node, appeared).After(began) {
			w.Logf("new: %s, %s after its pod", node, w.journal.when(node, appeared).Sub(began).Round(time.Millisecond))
		}
	}
	w.await("all pods run", func() bool {
		rs, err := w.typed.AppsV1().ReplicaSets(metav1.NamespaceDefault).Get(w.Context(), "big", metav1.GetOptions{})
		require.NoError(w, err)
		return rs.Status.ReadyReplicas == 5
	})
	w.Logf("all pods run after %s", time.Since(began).Round(time.Millisecond))
	background := metav1.DeletePropagationBackground
	require.NoError(w, w.typed.AppsV1().ReplicaSets(metav1.NamespaceDefault).Delete(w.Context(), "big",
		metav1.DeleteOptions{PropagationPolicy: &background}))
	w.awaitNodes(3)
}

// replicaSet has pods that use a folder of their node, which the autoscaler deletes only with their leave.
func (w *world) replicaSet(name string, replicas int32, annotations map[string]string) *appsv1.ReplicaSet {
	labels := map[string]string{"app": name}
	grace := int64(0)
	pod := corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "main", Image: "pause"}},
	}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}, Spec: pod,
			},
		},
	}
}

// place starts a pod on a node that could as well run elsewhere.
func (w *world) place(node string, annotations map[string]string, name string) {
	w.Helper()
	rs := w.replicaSet(name, 1, annotations)
	rs.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: 100, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
			}}},
		}},
	}}
	if annotations != nil {
		local := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		rs.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "local", VolumeSource: local}}
	}
	require.NoError(w, w.Create(w.Context(), rs))
	w.await(name+" runs on "+node, func() bool {
		pods, err := w.typed.CoreV1().Pods(metav1.NamespaceDefault).List(w.Context(),
			metav1.ListOptions{LabelSelector: "app=" + name})
		require.NoError(w, err)
		return len(pods.Items) == 1 && pods.Items[0].Status.Phase == corev1.PodRunning && pods.Items[0].Spec.NodeName == node
	})
}

// folder is where a node of the lab has all that is its own.
func (w *world) folder(node string) string {
	return filepath.Join(os.Getenv("LAB_HOME"), "default", "nodes", node)
}

// placeBare starts a pod that nobody would start again.
func (w *world) placeBare(node string) {
	w.Helper()
	require.NoError(w, w.Create(w.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "bare"},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "pause"}}},
	}))
}

// forbid makes a budget that allows nothing.
func (w *world) forbid(name string) {
	w.Helper()
	all := intstr.FromInt32(1)
	require.NoError(w, w.Create(w.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &all, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		},
	}))
	w.await("the budget counts its pod", func() bool {
		b, err := w.typed.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault).Get(w.Context(), name, metav1.GetOptions{})
		require.NoError(w, err)
		return b.Status.CurrentHealthy == 1
	})
}
