package longhorn

import (
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The images of instance managers, of which the second one is the same under another name.
const (
	oldImage = "longhornio/longhorn-instance-manager:v1.10.0"
	newImage = "longhornio/longhorn-instance-manager:v1.10.1"
)

// upgrades has Longhorn go over to another image for its instance managers, while a volume is written to: until nothing
// uses the old ones each node has two. Every pod is asked for its eviction all the time, as long as none may be
// evicted.
func (w *world) upgrades() {
	w.Helper()
	w.Lab("volume", "attach", "data", "node-a")
	w.Lab("load", "start", "--volume", "data")
	w.await("nobody goes by itself", func() bool { return w.mayDrain() == "a node once it is cordoned" })
	w.guardsDeletions("node-a")
	h := w.hammer()

	w.Log("Longhorn is told of another image")
	_, err := w.Typed.AppsV1().DaemonSets(namespace).Patch(w.Context(), "longhorn-manager", types.JSONPatchType, []byte(
		`[{"op": "replace", "path": "/spec/template/spec/containers/0/command/3", "value": "--instance-manager-image=`+
			newImage+`"}]`), patchOptions)
	require.NoError(w, err)
	w.await("two instance managers on each node", func() bool {
		return slices.Equal(w.nodesWith(oldImage), allNodes) && slices.Equal(w.nodesWith(newImage), allNodes)
	})
	time.Sleep(2 * time.Second) // so that the hammer has met both
	asked, wrong := h.stop()
	require.Empty(w, wrong)
	require.Greater(w, asked, 100)
	require.Contains(w, w.Lab("load", "stop"), "0       lost writes")

	w.Log("nothing uses the old ones any more")
	w.Lab("volume", "detach", "data")
	w.await("they are gone, though deletions wait for their turn, and their budgets with them", func() bool {
		return len(w.nodesWith(oldImage)) == 0 && len(w.longhornsBudgets()) <= len(allNodes)
	})
	require.Equal(w, allNodes, w.nodesWith(newImage))
	w.Lab("volume", "attach", "data", "node-b")
	w.Lab("load", "start", "--volume", "data")
	e := w.evictEverything()
	before := w.managers()
	w.cordon("node-c", true)
	w.await("a node goes as before", func() bool { return w.managers()["node-c"] == "" })
	time.Sleep(time.Second)
	w.stayed(before, "node-a", "node-b")
	e.stop()
	w.await("a replica is missed", func() bool { return w.robustness("data") == "degraded" })
	w.cordon("node-c", false)
	w.awaitHealthy("data")
	require.Contains(w, w.Lab("load", "stop"), "0       lost writes")
	w.Lab("volume", "detach", "data")
}

// nodesWith are the nodes on which an instance manager of an image is ready, by name.
func (w *world) nodesWith(image string) []string {
	w.Helper()
	pods, err := w.Typed.CoreV1().Pods(namespace).List(w.Context(), metav1.ListOptions{LabelSelector: managers})
	require.NoError(w, err)
	nodes := map[string]bool{}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil && p.Spec.Containers[0].Image == image && len(p.Status.ContainerStatuses) == 1 &&
			p.Status.ContainerStatuses[0].Ready {
			nodes[p.Spec.NodeName] = true
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}
