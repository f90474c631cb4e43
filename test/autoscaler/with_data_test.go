package autoscaler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/test/hammer"
	"github.com/lockkeeper/lockkeeper/test/scaling"
)

// delaysDeletion has the autoscaler wait with the deletion of a node that it has drained, for a time.
const delaysDeletion = "delay-deletion.cluster-autoscaler.kubernetes.io/test"

// TestNodesWithDataUnderTheAutoscaler: a volume of three replicas on three nodes, and what the autoscaler does to nodes
// at moments in which it asks no budget, or never comes back.
func TestNodesWithDataUnderTheAutoscaler(t *testing.T) {
	w := withLonghorn(t, "nodes with data under the Cluster Autoscaler", 4*time.Minute)
	data := random(t, 8<<20)
	w.Lab("volume", "create", "data", "--replicas", "3", "--size", "8Mi")
	w.Lab("volume", "attach", "data", "node-a")
	w.LabWith(string(data), "volume", "write", "data")
	w.Lab("volume", "detach", "data")

	w.attachesAfterTheTaint(string(data))
	w.diesInMidDrain()
	w.takesAllAtOnce(string(data))
}

// mayBeTaken is a node from which no autoscaler is held back, once one node keeps the volume.
func (w world) mayBeTaken() (node string) {
	w.Helper()
	w.Await("one node keeps the volume", func() bool {
		list, err := w.Typed.CoreV1().Nodes().List(w.Context(), metav1.ListOptions{})
		require.NoError(w, err)
		held := 0
		for _, n := range list.Items {
			if n.Annotations[scaleDownDisabled] == "true" {
				held++
			} else {
				node = n.Name
			}
		}
		return held == 1 && len(w.Managers()) == 3
	})
	return node
}

// begins starts the autoscaler, which may take some nodes, each the only one of its group.
func (w world) begins(take []string, flags ...string) {
	w.Helper()
	args := []string{"autoscaler", "start", "--autoscaler-flag", "scale-down-utilization-threshold=0.99"}
	for node, zone := range map[string]string{"node-a": "zone-x", "node-b": "zone-y", "node-c": "zone-z"} {
		least := 1
		if slices.Contains(take, node) {
			least = 0
		}
		args = append(args, "--node-group", fmt.Sprintf("%s=%d:1", zone, least))
	}
	for _, f := range flags {
		args = append(args, "--autoscaler-flag", f)
	}
	w.Lab(args...)
}

// attachesAfterTheTaint: the autoscaler waits for some seconds after its taint, and then evicts without asking a budget
// again, since instance managers are safe to evict. A volume that was attached meanwhile keeps the node; and the
// autoscaler, which has cordoned it, takes that back.
func (w world) attachesAfterTheTaint(data string) {
	w.Log("scenario: a volume is attached between the taint and the drain")
	node := w.mayBeTaken()
	began := time.Now()
	w.begins([]string{node}, "node-delete-delay-after-taint=10s", "max-pod-eviction-time=1s",
		"cordon-node-before-terminating=true")
	w.Await("the node is tainted", func() bool { return !w.Journal.After(began, node, scaling.Tainted).IsZero() })
	w.Lab("volume", "attach", "data", node)
	w.Await("the taint goes again", func() bool { return !w.Journal.After(began, node, scaling.Rolled).IsZero() })
	w.Lab("autoscaler", "stop")
	require.False(w, w.Journal.Has(node, scaling.Gone))
	require.Equal(w, data, w.Lab("volume", "read", "data"), "the volume has other bytes")
	require.Contains(w, w.Managers(), node)
	w.asBefore(node)
	w.Lab("volume", "detach", "data")
	w.Logf("rolled back %s after its taint", w.Journal.After(began, node, scaling.Rolled).
		Sub(w.Journal.After(began, node, scaling.Tainted)).Round(time.Millisecond))
}

// diesInMidDrain: the autoscaler is killed when the instance manager has gone and another pod has not. The taint stays,
// and as long as it counts nobody goes who has replicas of the same volume; until another autoscaler takes it back.
func (w world) diesInMidDrain() {
	w.Log("scenario: the autoscaler dies in mid-drain")
	node := w.mayBeTaken()
	w.place(node, map[string]string{safeToEvict: "true"}, "promised")
	w.Forbid(metav1.NamespaceDefault, "promised", nil)
	began := time.Now()
	w.begins([]string{node}, "max-pod-eviction-time=2m")
	w.Await("the instance manager is evicted", func() bool { return !slices.Contains(w.Managers(), node) })
	w.Lab("autoscaler", "stop")
	require.Zero(w, w.Journal.After(began, node, scaling.Rolled))
	for range 20 {
		for _, other := range w.Managers() {
			require.False(w, w.mayGo(other), "%s, while %s is away", other, node)
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.begins(nil)
	w.Await("another one takes the taint back", func() bool {
		return !w.Journal.After(began, node, scaling.Rolled).IsZero()
	})
	w.Lab("autoscaler", "stop")
	w.Await("its instance manager is back", func() bool { return slices.Contains(w.Managers(), node) })
	require.NoError(w, w.Typed.AppsV1().ReplicaSets(metav1.NamespaceDefault).Delete(w.Context(), "promised",
		metav1.DeleteOptions{}))
}

// takesAllAtOnce: all nodes are unneeded. Those that are tainted go one after the other, though each that is drained
// waits for its deletion, which comes when its time is over, whatever else is; and one stays with the data.
func (w world) takesAllAtOnce(data string) {
	w.Log("scenario: all nodes are tainted at once, and the deletion of each is delayed")
	w.mayBeTaken()
	for _, n := range w.Nodes() {
		w.Annotate(n, delaysDeletion, "true")
	}
	began := time.Now()
	w.begins(w.Nodes(), "node-delete-delay-after-taint=3s", "node-deletion-delay-timeout=8s", "max-pod-eviction-time=2m")
	away := map[string]time.Time{}
	w.Await("one node is left", func() bool {
		managers, nodes := w.Managers(), w.Nodes()
		for _, n := range nodes {
			if _, is := away[n]; !is && !slices.Contains(managers, n) {
				away[n] = time.Now()
				w.Logf("%s goes %s after the beginning", n, time.Since(began).Round(100*time.Millisecond))
			}
		}
		return len(nodes) == 1
	})
	left := w.Nodes()[0]
	var went []string
	for n := range away {
		went = append(went, n)
	}
	slices.SortFunc(went, func(a, b string) int { return away[a].Compare(away[b]) })
	require.Len(w, went, 2)
	first, gone := went[0], w.Journal.After(began, went[0], scaling.Gone)
	require.True(w, away[went[1]].After(gone), "%s goes before %s is gone", went[1], first)
	w.stays([]string{left}, "the last healthy replica of a volume went")
	require.Zero(w, w.Journal.After(began, left, scaling.Tainted), "%s is held back", left)
	w.Lab("autoscaler", "stop")
	w.asBefore(left)
	w.Lab("volume", "attach", "data", left, "--healthy=false")
	require.Equal(w, data, w.Lab("volume", "read", "data"), "the volume has other bytes")
	w.Lab("volume", "detach", "data")
}

// asBefore takes away what an autoscaler that was stopped has left on a node: its rollback leaves a taint, too.
func (w world) asBefore(node string) {
	w.Helper()
	for _, taint := range []string{leaving.RemovalTaint, "DeletionCandidateOfClusterAutoscaler"} {
		w.InLab(`kubectl taint node "$1" "$2-" >/dev/null 2>&1 || true`, node, taint)
	}
	w.InLab(`kubectl uncordon "$1" >/dev/null`, node)
}

// mayGo tells whether the API server would let the instance manager of a node be evicted now.
func (w world) mayGo(node string) bool {
	w.Helper()
	pods, err := w.Typed.CoreV1().Pods(scaling.Longhorn).List(w.Context(), metav1.ListOptions{
		LabelSelector: scaling.InstanceManagers, FieldSelector: "spec.nodeName=" + node,
	})
	require.NoError(w, err)
	require.Len(w, pods.Items, 1, node)
	err = hammer.Evict(w.Context(), w.Typed, &pods.Items[0], &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	require.True(w, err == nil || apierrors.IsTooManyRequests(err), "%v", err)
	return err == nil
}
