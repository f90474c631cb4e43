package api

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/starter"
	"github.com/lockkeeper/lockkeeper/test/apiserver"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// SignalFence remembers whom a fence was told of, and whether one is to begin.
func (t *told) SignalFence(_ context.Context, in workflows.FenceNodeInput, _ string, wanted bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fences = append(t.fences, fmt.Sprintf("%s %t", in.Node, wanted))
	return nil
}

func (t *told) fenced(node string, wanted bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Contains(t.fences, fmt.Sprintf("%s %t", node, wanted))
}

// forget has what fences were told so far be told as if for the first time.
func (t *told) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fences = nil
}

// TestTheWatcherStartsFences: of a node with OSDs that a health check finds unhealthy, or whose Machine it does, anew
// when the policy was edited, and also when the API that fences is removed and comes back in another version.
func TestTheWatcherStartsFences(t *testing.T) {
	const ns = "watched-fences"
	prepareFencing(t)
	api := fencingAPIs[0]
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	p := policy(t, "rook-ceph", `{ceph: {}, fencing: {api: ClusterAPI, namespace: machines}}`)
	p.SetNamespace(ns)
	create(t, p)
	nodes := []string{"fenced-a", "fenced-b", "fenced-c", "fenced-d"}
	for _, name := range nodes {
		makeHost(t, ns, name, name != "fenced-d")
		makeMachine(t, api, name)
	}
	watch(t, api)
	watcher := startWatcher(t, asAccount(config, "lockkeeper-watcher"), starter.Options{Namespace: ns})
	defer watcher.stop()
	temporal := watcher.told
	expect := func(node string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			assert.True(c, temporal.fenced(node, true), "%s of %q", node, temporal.fences)
		}, apiserver.Patience, 50*time.Millisecond)
	}
	lose(t, "fenced-a")
	lose(t, "fenced-d") // which hosts nothing
	expect("fenced-a")
	breakDisk(t, api, "fenced-b")
	expect("fenced-b")

	temporal.forget()
	require.NoError(t, server.Get(t.Context(), client.ObjectKeyFromObject(p), p))
	require.NoError(t, unstructured.SetNestedField(p.Object, true, "spec", "ceph", "allowMonQuorumLoss")) // whatever it is
	require.NoError(t, server.Update(t.Context(), p))
	expect("fenced-a")
	expect("fenced-b")

	reinstall(t, "v1beta1")
	defer reinstall(t, "v1beta1", "v1beta2")
	api.machine.Version = "v1beta1"
	watch(t, api)
	makeMachine(t, api, "fenced-c")
	breakDisk(t, api, "fenced-c")
	expect("fenced-c")
	require.False(t, temporal.fenced("fenced-d", true))
}

// watch makes a health check of all Machines, as soon as there can be one.
func watch(t *testing.T, api fencingAPI) {
	t.Helper()
	of := func(kind, status string) []any {
		return []any{map[string]any{"type": kind, "status": status, "timeoutSeconds": int64(1)}}
	}
	check := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"selector": map[string]any{},
		"checks": map[string]any{
			"unhealthyNodeConditions": of("Ready", "Unknown"), "unhealthyMachineConditions": of("Disk", "False"),
		},
	}}}
	check.SetGroupVersionKind(api.machine.GroupVersion().WithKind("MachineHealthCheck"))
	check.SetNamespace("machines")
	check.SetName("watched")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.NoError(c, server.Create(t.Context(), check.DeepCopy()))
	}, apiserver.Patience, 100*time.Millisecond)
	t.Cleanup(func() { _ = server.Delete(context.WithoutCancel(t.Context()), check) })
}

// makeHost makes a Node that is ready, and on it the pod of an OSD or of something else.
func makeHost(t *testing.T, ns, name string, hosts bool) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	create(t, node)
	setReady(t, node, corev1.ConditionTrue)
	labels := map[string]string{"app": "rook-ceph-osd", "ceph-osd-id": "1"}
	if !hosts {
		labels = map[string]string{"app": "shop"}
	}
	create(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "on-" + name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "osd", Image: "ceph"}}},
	})
}

// breakDisk has a Machine say that its disk is broken, as soon as it can be written.
func breakDisk(t *testing.T, api fencingAPI, name string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		m := &unstructured.Unstructured{}
		m.SetGroupVersionKind(api.machine)
		if !assert.NoError(c, server.Get(t.Context(), client.ObjectKey{Namespace: "machines", Name: name}, m)) {
			return
		}
		assert.NoError(c, unstructured.SetNestedSlice(m.Object, []any{map[string]any{
			"type": "Disk", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z",
		}}, "status", "conditions"))
		assert.NoError(c, server.Update(t.Context(), m))
	}, apiserver.Patience, 100*time.Millisecond)
}

// lose has Kubernetes know nothing of a node since some time ago.
func lose(t *testing.T, name string) {
	t.Helper()
	node := &corev1.Node{}
	require.NoError(t, server.Get(t.Context(), client.ObjectKey{Name: name}, node))
	setReady(t, node, corev1.ConditionUnknown)
}

func setReady(t *testing.T, node *corev1.Node, is corev1.ConditionStatus) {
	t.Helper()
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: is, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute)),
	}}
	require.NoError(t, server.Status().Update(t.Context(), node))
}

// reinstall takes away what Cluster API has, with all Machines, and brings it back in some versions.
func reinstall(t *testing.T, versions ...string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for _, name := range []string{"machines.cluster.x-k8s.io", "machinehealthchecks.cluster.x-k8s.io"} {
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(schema.GroupVersionKind{
			Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
		})
		require.NoError(t, server.Get(ctx, client.ObjectKey{Name: name}, crd))
		require.NoError(t, server.Delete(ctx, crd))
		again := &unstructured.Unstructured{Object: map[string]any{"spec": crd.Object["spec"]}}
		again.SetGroupVersionKind(crd.GroupVersionKind())
		again.SetName(name)
		all, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		require.NoError(t, err)
		for _, v := range all {
			v := v.(map[string]any) //nolint:forcetypeassert // as the API has it
			v["served"] = slices.Contains(versions, fmt.Sprint(v["name"]))
		}
		require.NoError(t, unstructured.SetNestedSlice(again.Object, all, "spec", "versions"))
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			assert.NoError(c, server.Create(ctx, again.DeepCopy()))
		}, apiserver.Patience, 100*time.Millisecond)
	}
}
