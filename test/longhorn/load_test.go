package longhorn

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/internal/longhorn"
	"github.com/lockkeeper/lockkeeper/test/turns"
)

// TestRealLonghornUnderLoad: a volume with a replica on each of three nodes is written to all the time, and everything
// is evicted that may be. Nodes are drained, given back in mid-way, without Longhorn's manager, and lost; and the image
// of the instance managers is another one in the end.
func TestRealLonghornUnderLoad(t *testing.T) {
	turns.Await(t, "the real Longhorn under load", 4*time.Minute)
	w := start(t)
	defer w.MoveIn("--longhorn").Stop()
	w.set("kubernetes-cluster-autoscaler-enabled", "true")
	w.Lab("volume", "create", "data", "--replicas", "3", "--size", "16Mi")
	w.Lab("volume", "attach", "data", "node-a")
	w.Lab("load", "start", "--volume", "data")
	w.await("nobody goes by itself", func() bool { return w.mayDrain() == "a node once it is cordoned" })
	e := w.evictEverything()
	before := w.managers()
	time.Sleep(3 * time.Second)
	require.Equal(t, before, w.managers(), "a volume in use loses a replica, and nobody had to go")

	t.Log("a node is drained, another one waits, and is given back before its turn")
	began := time.Now()
	w.cordon("node-b", true)
	w.await("it goes", func() bool { return w.managers()["node-b"] == "" })
	t.Logf("gone %s after its cordon", time.Since(began).Round(time.Millisecond))
	w.await("a replica is missed", func() bool { return w.robustness("data") == "degraded" })
	w.cordon("node-c", true)
	time.Sleep(3 * time.Second)
	w.cordon("node-c", false)
	time.Sleep(time.Second)
	w.stayed(before, "node-a", "node-c")
	w.since(e, 0)
	e.stop() // until the rebuild begins the node has nothing to lose, and would be evicted again and again
	w.cordon("node-b", false)
	w.awaitHealthy("data")

	t.Log("Longhorn's manager on the node does not answer")
	w.Lab("fault", "pod-hang", namespace+"/"+w.longhornsManager("node-c"))
	before = w.managers()
	e = w.evictEverything()
	w.cordon("node-c", true)
	w.await("it goes all the same", func() bool { return w.managers()["node-c"] == "" })
	time.Sleep(time.Second)
	w.stayed(before, "node-a", "node-b")
	w.since(e, 0)
	e.stop()
	w.Lab("fault", "pod-resume", namespace+"/"+w.longhornsManager("node-c")) // which tells the others of its replica
	w.await("a replica is missed", func() bool { return w.robustness("data") == "degraded" })
	w.cordon("node-c", false)
	w.awaitHealthy("data")

	t.Log("a node is lost")
	w.Lab("fault", "node-lost", "node-c")
	w.await("its replica counts no more", func() bool { return w.robustness("data") == "degraded" })
	require.Contains(t, w.Lab("load", "stop"), "0       lost writes")
	w.Lab("volume", "detach", "data")
	w.cordon("node-b", true)
	w.await("one of the two may go", func() bool { return state(w.decide(), "node-b") == longhorn.Open })
	w.cordon("node-a", true)
	w.await("none of them goes that is the last", func() bool {
		d := w.decide()
		return state(d, "node-a") == longhorn.Kept && state(d, "node-b") == longhorn.Kept
	})
	require.Contains(t, w.explain("node-a"), "volume data has its last healthy replica here")
	w.cordon("node-a", false)
	w.cordon("node-b", false)
	w.Lab("fault", "node-return", "node-c")
	w.awaitAllRun()
	w.Lab("volume", "attach", "data", "node-b")
	w.Lab("load", "start", "--volume", "data")
	time.Sleep(time.Second)
	require.Contains(t, w.Lab("load", "stop"), "0       lost writes")
	w.Lab("volume", "detach", "data")
	w.upgrades()
}

// managers are the pods of instance managers that are not about to end, by node.
func (w *world) managers() map[string]types.UID {
	w.Helper()
	pods, err := w.Typed.CoreV1().Pods(namespace).List(w.Context(), metav1.ListOptions{LabelSelector: managers})
	require.NoError(w, err)
	out := map[string]types.UID{}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			out[p.Spec.NodeName] = p.UID
		}
	}
	return out
}

// stayed: the instance managers of some nodes are those that they were before.
func (w *world) stayed(before map[string]types.UID, nodes ...string) {
	w.Helper()
	now := w.managers()
	for _, n := range nodes {
		require.Equal(w, before[n], now[n], "%s was not to go", n)
	}
}

// awaitHealthy waits until all replicas of a volume are whole and in use, and everything runs.
func (w *world) awaitHealthy(volume string) {
	w.Helper()
	began := time.Now()
	w.await("it is whole again", func() bool { return w.robustness(volume) == "healthy" && w.running() == len(allNodes) })
	w.Logf("whole again after %s", time.Since(began).Round(time.Second))
}

func (w *world) robustness(volume string) string {
	w.Helper()
	v := &unstructured.Unstructured{}
	v.SetGroupVersionKind(schema.GroupVersionKind{Group: "longhorn.io", Version: "v1beta2", Kind: "Volume"})
	require.NoError(w, w.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: volume}, v))
	said, _, _ := unstructured.NestedString(v.Object, "status", "robustness")
	return said
}

// longhornsManager is the pod of Longhorn's own manager on a node.
func (w *world) longhornsManager(node string) string {
	w.Helper()
	pods, err := w.Typed.CoreV1().Pods(namespace).List(w.Context(), metav1.ListOptions{
		LabelSelector: "app=longhorn-manager", FieldSelector: "spec.nodeName=" + node,
	})
	require.NoError(w, err)
	require.Len(w, pods.Items, 1)
	return strings.TrimSpace(pods.Items[0].Name)
}
