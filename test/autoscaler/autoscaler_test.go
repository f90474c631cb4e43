// Package autoscaler tries what the real Cluster Autoscaler does to a lab.
package autoscaler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/test/scaling"
	"github.com/lockkeeper/lockkeeper/test/turns"
)

// What people say to the autoscaler.
const (
	safeToEvict       = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	scaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
)

var autoscaler = scaling.Autoscaler{
	Name: "the real Cluster Autoscaler", Program: "cluster-autoscaler", Target: "autoscaler", Taint: leaving.RemovalTaint,
}

type world struct{ *scaling.World }

// anyNode lets every node go, and as many come as Longhorn has ports for; a drain is given up after one attempt.
var anyNode = []string{
	"--node-group", "zone-x=0:6", "--node-group", "zone-y=0:6", "--node-group", "zone-z=0:6",
	"--autoscaler-flag", "max-pod-eviction-time=1s",
}

// TestClusterAutoscaler has each of six nodes in another situation when the autoscaler first looks at them, and then
// has more pods than there is room for.
func TestClusterAutoscaler(t *testing.T) {
	turns.Await(t, autoscaler.Name, 2*time.Minute)
	w := world{scaling.Start(t, autoscaler, "--nodes-per-zone=2")}
	// node-a is empty.
	w.place("node-b", nil, "budget")
	w.Forbid(metav1.NamespaceDefault, "budget", nil)
	w.place("node-c", map[string]string{safeToEvict: "true"}, "promised")
	w.Forbid(metav1.NamespaceDefault, "promised", nil)
	w.Annotate("node-d", scaleDownDisabled, "true")
	w.placeBare("node-e")
	w.place("node-f", map[string]string{safeToEvict: "true"}, "local")

	w.Lab(append([]string{"autoscaler", "start"}, anyNode...)...)
	w.Await("the empty node goes", func() bool { return w.Journal.Has("node-a", scaling.Gone) })
	w.Await("the node whose pods may go goes", func() bool { return w.Journal.Has("node-f", scaling.Gone) })
	w.Await("the node of the budget that counts only when its pod is evicted is tainted and stays", func() bool {
		return w.Journal.Has("node-c", scaling.Rolled)
	})
	w.Logf("taint to deletion: empty %s, drained %s; taint to rollback %s",
		w.Journal.Between("node-a", scaling.Tainted, scaling.Gone),
		w.Journal.Between("node-f", scaling.Tainted, scaling.Gone),
		w.Journal.Between("node-c", scaling.Tainted, scaling.Rolled))
	for _, node := range []string{"node-b", "node-d", "node-e"} {
		require.False(t, w.Journal.Has(node, scaling.Tainted), node)
	}
	require.NoDirExists(t, w.Folder("node-f"))
	require.DirExists(t, w.Folder("node-b"))

	// Its pod gone, nothing keeps it.
	require.NoError(t, w.Typed.AppsV1().ReplicaSets(metav1.NamespaceDefault).Delete(t.Context(), "promised",
		metav1.DeleteOptions{}))
	require.Equal(t, []string{"node-b", "node-d", "node-e"}, w.AwaitNodes(3))

	w.scaleUpAndDown()
	for _, node := range []string{"node-b", "node-d", "node-e"} {
		require.False(t, w.Journal.Has(node, scaling.Tainted), node)
	}
	w.Lab("autoscaler", "stop")
}

// scaleUpAndDown has two more pods than three nodes have room for, and then none.
func (w world) scaleUpAndDown() {
	w.Helper()
	began := time.Now()
	big := scaling.ReplicaSet("big", 5)
	big.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("9"),
	}
	require.NoError(w, w.Create(w.Context(), big))
	for _, node := range w.AwaitNodes(5) {
		if w.Journal.When(node, scaling.Appeared).After(began) {
			w.Logf("new: %s, %s after its pod", node, w.Journal.When(node, scaling.Appeared).Sub(began).Round(time.Millisecond))
		}
	}
	w.Await("all pods run", func() bool {
		rs, err := w.Typed.AppsV1().ReplicaSets(metav1.NamespaceDefault).Get(w.Context(), "big", metav1.GetOptions{})
		require.NoError(w, err)
		return rs.Status.ReadyReplicas == 5
	})
	w.Logf("all pods run after %s", time.Since(began).Round(time.Millisecond))
	background := metav1.DeletePropagationBackground
	require.NoError(w, w.Typed.AppsV1().ReplicaSets(metav1.NamespaceDefault).Delete(w.Context(), "big",
		metav1.DeleteOptions{PropagationPolicy: &background}))
	w.AwaitNodes(3)
}

// place starts a pod on a node that could as well run elsewhere.
func (w world) place(node string, annotations map[string]string, name string) {
	w.Helper()
	rs := scaling.ReplicaSet(name, 1)
	rs.Spec.Template.Annotations = annotations
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
	w.Await(name+" runs on "+node, func() bool {
		pods := w.Pods(metav1.NamespaceDefault, name)
		return len(pods) == 1 && pods[0].Status.Phase == corev1.PodRunning && pods[0].Spec.NodeName == node
	})
}

// placeBare starts a pod that nobody would start again.
func (w world) placeBare(node string) {
	w.Helper()
	require.NoError(w, w.Create(w.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "bare"},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "pause"}}},
	}))
}
