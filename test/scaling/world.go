// Package scaling is a lab in which a real autoscaler is tried, for the tests of each of them.
package scaling

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockkeeper/lockkeeper/test/barelab"
)

const patience = 3 * time.Minute

// Autoscaler is one of those that a lab may have.
type Autoscaler struct {
	// Name is what people call it.
	Name string
	// Program is its program beside the lab's, and Target the target of make that builds it.
	Program, Target string
	// Taint is the key of the taint by which it says that it is about to remove a node.
	Taint string
}

// World is a lab without Ceph, in which no autoscaler is started yet.
type World struct {
	*barelab.World
	Journal *Journal
}

// Start starts a lab for an autoscaler. Who decides beside it is whatever a test then starts in it.
func Start(t *testing.T, a Autoscaler, flags ...string) *World {
	t.Helper()
	barelab.Need(t, a.Name, a.Program, a.Target)
	w := &World{World: barelab.Up(t, append([]string{"--temporal=false"}, flags...)...)}
	w.Journal = Follow(t, w.Typed, a.Taint)
	return w
}

// Folder is where a node of the lab has all that is its own.
func (w *World) Folder(node string) string {
	return filepath.Join(os.Getenv("LAB_HOME"), "default", "nodes", node)
}

// Nodes are the names of the nodes that are ready, sorted.
func (w *World) Nodes() []string {
	w.Helper()
	list, err := w.Typed.CoreV1().Nodes().List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	var names []string
	for _, n := range list.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				names = append(names, n.Name)
			}
		}
	}
	return names
}

// AwaitNodes waits until so many nodes are ready, and returns them.
func (w *World) AwaitNodes(n int) []string {
	w.Helper()
	w.Await("the number of nodes", func() bool { return len(w.Nodes()) == n })
	return w.Nodes()
}

// Annotate sets an annotation of a node, or takes it away if it is "".
func (w *World) Annotate(node, key, value string) {
	w.Helper()
	quoted := fmt.Sprintf("%q", value)
	if value == "" {
		quoted = "null"
	}
	_, err := w.Typed.CoreV1().Nodes().Patch(w.Context(), node, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+key+`":`+quoted+`}}}`), metav1.PatchOptions{})
	require.NoError(w, err)
}

// Await waits until the answer is yes.
func (w *World) Await(what string, ok func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("not within %s: %s\n%s", patience, what, w.Journal)
		}
	}
}
