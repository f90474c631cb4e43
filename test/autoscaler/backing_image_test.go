package autoscaler

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/test/scaling"
)

// TestBackingImageUnderTheAutoscaler is the third scenario of the proposal's test plan, which is to be like the second:
// the node with the only copy of a backing image stays. When volumes of the image are elsewhere, so is the image; then
// Longhorn deletes the copy that nobody uses, and the node goes.
func TestBackingImageUnderTheAutoscaler(t *testing.T) {
	w := withLonghorn(t, "a backing image under the Cluster Autoscaler", 3*time.Minute)
	old := w.Nodes()
	w.fill(fill(len(old)) / 2)

	t.Log("scenario: test CA should block scale down of node running backing image manager pod")
	image := random(t, 4<<20)
	w.backingImage("image", image)
	host := w.imageManagers()[0]
	w.endsADrainOf(host)
	w.scales()
	added := w.addNodesThatStay(old)
	began := time.Now()
	w.fill(0)
	left := w.AwaitNodes(len(old) + 1)
	t.Logf("the original number of nodes and %s after %s: %v", host, time.Since(began).Round(time.Second), left)
	require.Contains(t, left, host)
	w.stays(left, "the only copy of a backing image went")

	w.Await("Longhorn is on each of them", func() bool { return len(w.Managers()) == len(left) })
	w.SetLonghorn("Node", host, `{"spec":{"allowScheduling":false}}`)
	w.Lab("volume", "create", "data", "--replicas", "3", "--size", "8Mi", "--backing-image", "image")
	w.Lab("volume", "attach", "data", added[0])
	bytes := w.Lab("volume", "read", "data")
	require.True(t, strings.HasPrefix(bytes, string(image)), "the volume has other bytes than its image")
	w.LabWith("changed", "volume", "write", "data")
	w.Lab("volume", "detach", "data")
	w.SetLonghorn("Setting", "backing-image-cleanup-wait-interval", `{"value":"0"}`)
	began = time.Now()
	left = w.AwaitNodes(len(old))
	t.Logf("the original number of nodes after %s", time.Since(began).Round(time.Second))
	require.ElementsMatch(t, added, left)
	w.Lab("volume", "attach", "data", added[1])
	require.True(t, "changed"+bytes[len("changed"):] == w.Lab("volume", "read", "data"), "the volume has other bytes")
	w.Lab("volume", "detach", "data")
}

// backingImage has Longhorn fetch an image, of which it keeps one copy.
func (w world) backingImage(name string, bytes []byte) {
	w.Helper()
	from := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
		_, _ = answer.Write(bytes)
	}))
	defer from.Close()
	image := scaling.LonghornObject("BackingImage", name)
	image.Object["spec"] = map[string]any{
		"sourceType": "download", "sourceParameters": map[string]any{"url": from.URL + "/" + name}, "minNumberOfCopies": 1,
		"dataEngine": "v1",
	}
	require.NoError(w, w.Create(w.Context(), image))
	w.Await("the image is kept by a manager", func() bool { return len(w.imageManagers()) == 1 })
}

// imageManagers are the nodes with a copy of an image, whose managers run.
func (w world) imageManagers() (nodes []string) {
	w.Helper()
	pods, err := w.Typed.CoreV1().Pods(scaling.Longhorn).List(w.Context(),
		metav1.ListOptions{LabelSelector: "longhorn.io/component=backing-image-manager"})
	require.NoError(w, err)
	for _, p := range pods.Items {
		if s := p.Status.ContainerStatuses; p.DeletionTimestamp == nil && len(s) == 1 && s[0].Ready {
			nodes = append(nodes, p.Spec.NodeName)
		}
	}
	return nodes
}

// endsADrainOf drains a node with the only copy of an image: it comes back, and so does its manager.
func (w world) endsADrainOf(node string) {
	w.Helper()
	began := time.Now()
	w.InLab(`kubectl drain "$1" --ignore-daemonsets --delete-emptydir-data --force --timeout=2m &&
		kubectl uncordon "$1"`, node)
	w.Await("the image's manager is back", func() bool { return len(w.imageManagers()) == 1 })
	w.Logf("drained, and as before, after %s", time.Since(began).Round(time.Second))
	require.Equal(w, []string{node}, w.imageManagers())
}
