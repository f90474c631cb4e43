package api

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/longhorn"
	"github.com/lockkeeper/lockkeeper/internal/longhorn/longhorncluster"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/test/apiserver"
)

// TestLonghornIsInstalledLater: its absence has a name, and the same reader finds it when it is there. An object that
// makes no sense is named, and its node stays.
func TestLonghornIsInstalledLater(t *testing.T) {
	own, err := apiserver.Start(*root)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Stop()) })
	c, err := client.New(own.Config, client.Options{Scheme: kube.Scheme})
	require.NoError(t, err)
	reader := longhorncluster.New(c, "longhorn-system")
	_, err = reader.World(t.Context(), time.Now(), longhorncluster.Before{})
	require.ErrorIs(t, err, longhorncluster.ErrNotInstalled)

	require.NoError(t, own.Install("testdata/longhorn-crds.yaml"))
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "longhorn-system"}}))
	for _, name := range []string{"node-a", "node-b"} {
		require.NoError(t, c.Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Unschedulable: true},
		}))
	}
	for _, o := range []map[string]any{
		{"kind": "Setting", "metadata": map[string]any{"name": "current-longhorn-version"}, "value": "v1.10.0"},
		{
			"kind": "Replica", "metadata": map[string]any{"name": "r"},
			"spec": map[string]any{"nodeID": "node-a", "volumeName": map[string]any{"of": "v"}, "healthyAt": "2026"},
		},
	} {
		u := &unstructured.Unstructured{Object: o}
		u.SetAPIVersion("longhorn.io/v1beta2")
		u.SetNamespace("longhorn-system")
		require.NoError(t, c.Create(t.Context(), u))
	}
	w, err := reader.World(t.Context(), time.Now(), longhorncluster.Before{})
	require.NoError(t, err)
	d := longhorn.Decide(w)
	require.NotEmpty(t, d.Faults)
	require.Equal(t, `Replica r: spec.volumeName: "map[of:v]": allowed are text`, d.Faults[0].String())
	require.Equal(t, longhorn.Kept, d.Nodes[0].State)
	require.Equal(t, longhorn.Malformed, d.Nodes[0].Reason)
	require.Equal(t, longhorn.Open, d.Nodes[1].State)
}

// TestAHoldThatComesLateHoldsNobodyBack: who held autoscalers back from a node has heard nothing, so it did it again,
// and took it back later. What it wrote first arrives after that. And a node that changes between the look at it and
// the write is looked at once more.
func TestAHoldThatComesLateHoldsNobodyBack(t *testing.T) {
	const ns = "longhorn-late"
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	mayWork(t, ns)
	made := policy(t, "longhorn", `{longhorn: {}}`)
	made.SetNamespace(ns)
	create(t, made)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "late-node"}}
	create(t, node)
	cluster, err := kube.New(config)
	require.NoError(t, err)
	key := storage.ClusterKey{Namespace: ns, Name: "longhorn"}
	hold := func(c *kube.Cluster, nodes ...string) error {
		_, err := c.ApplyStaticBudgets(t.Context(), activities.StaticBudgetsInput{
			Cluster: key, LeavingNodes: activities.LeavingNodes{Stay: nodes},
		})
		return err
	}
	isHeld := func() bool {
		require.NoError(t, server.Get(t.Context(), client.ObjectKeyFromObject(node), node))
		return node.Annotations[kube.HeldBack] != ""
	}

	network := &held{}
	slow := rest.CopyConfig(config)
	slow.Wrap(func(rt http.RoundTripper) http.RoundTripper { network.RoundTripper = rt; return network })
	silent, err := kube.New(slow)
	require.NoError(t, err)
	require.Error(t, hold(silent, node.Name))
	require.Len(t, network.requests, 1)
	require.NoError(t, hold(cluster, node.Name))
	require.True(t, isHeld())
	require.NoError(t, hold(cluster))
	require.False(t, isHeld())
	answer, err := network.RoundTripper.RoundTrip(network.requests[0])
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusUnprocessableEntity, answer.StatusCode)
	require.False(t, isHeld())

	times := 0
	require.NoError(t, hold(disturbed(t, func(string) {
		if times++; times <= 2 {
			require.NoError(t, server.Patch(t.Context(), node.DeepCopy(), client.RawPatch(types.MergePatchType,
				fmt.Appendf(nil, `{"metadata":{"labels":{"touched":"%d"}}}`, times))))
		}
	}), node.Name))
	require.Equal(t, 3, times)
	require.True(t, isHeld())
}

// TestABudgetThatChangesIsEmptied: where nobody empties Longhorn's budgets at birth lockkeeper does. One that Longhorn
// or a person changes in that moment is read again, and ours stay as they are meanwhile.
func TestABudgetThatChangesIsEmptied(t *testing.T) {
	const ns = "longhorn-emptied"
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	mayWork(t, ns)
	made := policy(t, "longhorn", `{longhorn: {budgetsEmptiedBy: Worker}}`)
	made.SetNamespace(ns)
	create(t, made)
	theirs := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "instance-manager-a"},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{
			MatchLabels: map[string]string{kube.LonghornComponent: kube.InstanceManager, kube.LonghornNode: "node-a"},
		}},
	}
	create(t, theirs)
	times := 0
	cluster := disturbed(t, func(path string) {
		if !strings.HasSuffix(path, "/poddisruptionbudgets/"+theirs.Name) {
			return
		}
		if times++; times <= 2 {
			require.NoError(t, server.Patch(t.Context(), theirs.DeepCopy(), client.RawPatch(types.MergePatchType,
				fmt.Appendf(nil, `{"spec":{"minAvailable":%d}}`, times))))
		}
	})
	closed := budget.Spec{MinAvailable: budget.Everything}
	r, err := cluster.ApplyBudgets(t.Context(), activities.BudgetInput{
		Cluster: storage.ClusterKey{Namespace: ns, Name: "longhorn"},
		Specs:   budget.Specs{Daemons: closed, Unproved: &closed},
	})
	require.NoError(t, err)
	require.Empty(t, r.Conflict)
	require.Equal(t, 3, times)
	require.NoError(t, server.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs))
	require.True(t, kube.SelectsNothing(theirs))
	require.Zero(t, theirs.Spec.MinAvailable.IntValue())
}

// mayWork gives the worker its rights in a namespace of Longhorn's.
func mayWork(t *testing.T, namespace string) {
	t.Helper()
	apply(t, filepath.Join(*root, "deploy", "rbac.yaml"), "")
	for _, file := range []string{"storage-namespace.yaml", "storage-namespace-longhorn.yaml"} {
		apply(t, filepath.Join(*root, "deploy", file), namespace)
	}
}

// disturbed is a cluster in which something happens before each object is patched. It has the rights of the worker.
func disturbed(t *testing.T, before func(path string)) *kube.Cluster {
	t.Helper()
	busy := asAccount(config, "lockkeeper-worker")
	busy.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPatch {
				before(r.URL.Path)
			}
			return rt.RoundTrip(r)
		})
	})
	c, err := kube.New(busy)
	require.NoError(t, err)
	return c
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
