// Package longhorn tries what lockkeeper decides about Longhorn against the real one, in a lab without Ceph.
package longhorn

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/internal/longhorn"
	"github.com/lockkeeper/lockkeeper/internal/longhorn/longhorncluster"
	"github.com/lockkeeper/lockkeeper/test/barelab"
)

const (
	namespace = "longhorn-system"
	patience  = 90 * time.Second
)

var allNodes = []string{"node-a", "node-b", "node-c"}

// world is a lab of three nodes with Longhorn, and the decision before.
type world struct {
	*barelab.World
	reader *longhorncluster.Reader
	before longhorncluster.Before
}

// start starts it, with more flags of `lab up`.
func start(t *testing.T, flags ...string) *world {
	t.Helper()
	barelab.Need(t, "the real Longhorn", "longhorn/longhorn-manager", "longhorn")
	w := &world{World: barelab.Up(t, append([]string{"--nodes-per-zone=1", "--longhorn"}, flags...)...)}
	w.reader = longhorncluster.New(w.Client, namespace)
	return w
}

// decide reads the installation and decides, and remembers whom it kept.
func (w *world) decide() longhorn.Decision {
	w.Helper()
	read, err := w.reader.World(w.Context(), time.Now(), w.before)
	require.NoError(w, err)
	d := longhorn.Decide(read)
	require.Empty(w, d.Faults)
	w.before.Kept = d.Kept
	return d
}

// kept are the nodes that lockkeeper keeps.
func (w *world) kept() []string {
	var kept []string
	for _, n := range w.decide().Nodes {
		if n.State == longhorn.Kept {
			kept = append(kept, n.Node)
		}
	}
	return kept
}

// budgeted are the nodes over whose instance managers Longhorn itself has a budget.
func (w *world) budgeted() []string {
	w.Helper()
	var budgets policyv1.PodDisruptionBudgetList
	require.NoError(w, w.List(w.Context(), &budgets, client.InNamespace(namespace)))
	covered := map[string]bool{}
	for _, b := range budgets.Items {
		if b.Spec.Selector != nil && strings.HasPrefix(b.Name, "instance-manager-") {
			covered[b.Spec.Selector.MatchLabels["longhorn.io/node"]] = true
		}
	}
	var nodes []string
	for _, n := range allNodes {
		if covered[n] {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func (w *world) explain(node string) string {
	w.Helper()
	said, ok := w.decide().Explain(node)
	require.True(w, ok)
	return strings.Join(said, "\n")
}

func (w *world) cordon(node string, wanted bool) {
	w.Helper()
	verb := map[bool]string{true: "true", false: "false"}[wanted]
	_, err := w.Typed.CoreV1().Nodes().Patch(w.Context(), node, "application/merge-patch+json",
		[]byte(`{"spec":{"unschedulable":`+verb+`}}`), patchOptions)
	require.NoError(w, err)
}

// set changes one of Longhorn's settings.
func (w *world) set(name, value string) {
	w.Helper()
	setting := &unstructured.Unstructured{}
	setting.SetGroupVersionKind(schema.GroupVersionKind{Group: "longhorn.io", Version: "v1beta2", Kind: "Setting"})
	setting.SetNamespace(namespace)
	setting.SetName(name)
	require.NoError(w, w.Patch(w.Context(), setting, client.RawPatch("application/merge-patch+json",
		[]byte(`{"value":"`+value+`"}`))))
}

func (w *world) await(what string, ok func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("not within %s: %s\n%s", patience, what, w.describe())
		}
	}
}

// describe is how the installation looks, for who has to find out what went wrong.
func (w *world) describe() string {
	w.Helper()
	c := barelab.Command(context.Background(), `kubectl -n "$1" get \
		maintenancepolicies,pdb,instancemanagers,volumes.longhorn.io,nodes 2>&1
		kubectl -n "$1" get pods -L lockkeeper.io/proved,longhorn.io/node -l longhorn.io/component=instance-manager 2>&1`, namespace)
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s (%v)", out, err)
	}
	return string(out)
}
