package starter

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

const another = storage.Longhorn

// TestScalesDown is the table of which job owns a node that leaves.
func TestScalesDown(t *testing.T) {
	ceph, other := []storage.Kind{storage.Ceph}, []storage.Kind{another}
	both := []storage.Kind{storage.Ceph, another}
	for _, way := range []leaving.Way{leaving.Removal, leaving.Disrupted, leaving.Deleting} {
		assert.True(t, scalesDown(way, false, other), way)
		assert.True(t, scalesDown(way, true, both), "%s, while a job of ours has it cordoned", way)
		assert.False(t, scalesDown(way, false, ceph), way)
		assert.False(t, scalesDown(way, false, nil), way)
	}
	assert.True(t, scalesDown(leaving.Cordoned, false, other), "by a person or another tool")
	assert.False(t, scalesDown(leaving.Cordoned, true, other), "by a drain of ours")
	assert.False(t, scalesDown(leaving.Cordoned, false, both), "Ceph's lens observes the drain")
	assert.False(t, scalesDown(leaving.Not, false, other))
}

// homes has the same kinds on every node.
type homes struct {
	kinds []storage.Kind
	err   error
}

func (h *homes) On(context.Context, string) (Home, error) { return Home{Kinds: h.kinds}, h.err }

// TestLeavingIsTold: a job hears of its node when it begins to leave, and when it leaves in another way, and otherwise
// nothing.
func TestLeavingIsTold(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "1"}}
	api := fake.NewClientBuilder().WithScheme(kube.Scheme).WithObjects(n).Build()
	temporal, there := &recorder{}, &homes{kinds: []storage.Kind{another}}
	r := &LeavingReconciler{Objects: api, Homes: there, Temporal: temporal, Now: func() time.Time { return now }}
	look := func() (reconcile.Result, error) {
		return r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "node-a"}})
	}
	change := func(what func(*corev1.Node)) {
		require.NoError(t, api.Get(t.Context(), types.NamespacedName{Name: "node-a"}, n))
		what(n)
		require.NoError(t, api.Update(t.Context(), n))
	}
	told := func(want ...string) reconcile.Result {
		t.Helper()
		temporal.calls = nil
		result, err := look()
		require.NoError(t, err)
		if result.RequeueAfter == follows {
			require.Empty(t, temporal.calls)
			now = now.Add(follows)
			result, err = look()
			require.NoError(t, err)
		}
		_, err = look() // of which nothing is news
		require.NoError(t, err)
		assert.Equal(t, want, temporal.calls)
		return result
	}
	told()
	change(func(n *corev1.Node) { n.Spec.Unschedulable = true })
	result, err := look()
	require.NoError(t, err)
	require.Equal(t, follows, result.RequeueAfter, "its keeper comes first")
	told("scale down node-a: node-a is cordoned")
	set := now.Add(-10 * time.Minute)
	change(func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: leaving.RemovalTaint, Value: strconv.FormatInt(set.Unix(), 10)}}
	})
	told("scale down node-a: node-a is tainted by the Cluster Autoscaler")
	set = set.Add(time.Second)
	change(func(n *corev1.Node) { n.Spec.Taints[0].Value = strconv.FormatInt(set.Unix(), 10) })
	again := told("scale down node-a: node-a is tainted by the Cluster Autoscaler")
	assert.Equal(t, set.Add(time.Hour).Sub(now), again.RequeueAfter, "when the taint expires, no event tells")
	now = set.Add(time.Hour)
	assert.Zero(t, told("scale down node-a: node-a is cordoned").RequeueAfter)
	change(func(n *corev1.Node) { n.Spec = corev1.NodeSpec{} })
	told()
	change(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: leaving.DisruptedTaint}} })
	there.err = errors.New("the cache does not answer")
	_, err = look()
	require.ErrorIs(t, err, there.err)
	there.err, temporal.away = nil, errors.New("Temporal is away")
	_, err = look()
	require.NoError(t, err)
	now = now.Add(follows)
	_, err = look()
	require.ErrorIs(t, err, temporal.away)
	temporal.away = nil
	told("scale down node-a: node-a is tainted by Karpenter")
	require.NoError(t, api.Delete(t.Context(), n))
	told()
	n = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "2"}}
	n.Spec.Unschedulable = true
	require.NoError(t, api.Create(t.Context(), n))
	there.kinds = nil
	told()
	there.kinds = []storage.Kind{another}
	told("scale down node-a: node-a is cordoned")
}

// TestHomes: a node hosts what has an OSD or a mon on it, by a policy that makes sense and stays.
func TestHomes(t *testing.T) {
	policy := &v1alpha1.MaintenancePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "rook-ceph"},
		Spec:       v1alpha1.MaintenancePolicySpec{Ceph: &v1alpha1.CephSpec{}},
	}
	other := &v1alpha1.MaintenancePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "longhorn-system", Name: "longhorn"},
		Spec: v1alpha1.MaintenancePolicySpec{Longhorn: &v1alpha1.LonghornSpec{
			RemovalTaintExpiry: &metav1.Duration{Duration: 2 * time.Hour},
		}},
	}
	manager := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "longhorn-system", Name: "manager",
			Labels: map[string]string{"longhorn.io/component": "instance-manager"},
		},
		Spec: corev1.PodSpec{NodeName: "node-b"},
	}
	pod := func(name, node, app string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: name, Labels: map[string]string{"app": app}},
			Spec:       corev1.PodSpec{NodeName: node},
		}
	}
	api := fake.NewClientBuilder().WithScheme(kube.Scheme).WithObjects(policy, other, manager,
		pod("osd", "node-a", "rook-ceph-osd"), pod("mon", "node-b", "rook-ceph-mon"), pod("web", "node-c", "web")).Build()
	for node, want := range map[string]Home{
		"node-a": {Kinds: []storage.Kind{storage.Ceph}}, "node-c": {},
		"node-b": {Kinds: []storage.Kind{storage.Ceph, storage.Longhorn}, Expiry: 2 * time.Hour},
	} {
		home, err := cachedHomes{api}.On(t.Context(), node)
		require.NoError(t, err)
		assert.Equal(t, want, home, node)
	}
}

// TestCordonOfOurs: that lockkeeper has cordoned a node is still known of the stripped one.
func TestCordonOfOurs(t *testing.T) {
	for manager, want := range map[string]bool{kube.FieldOwner: true, "kubectl": false} {
		n := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}
		n.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)},
			{Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:unschedulable":{}}}`)},
		}
		assert.Equal(t, want, kube.OwnCordon(n), manager)
		slim, err := strip(n)
		require.NoError(t, err)
		assert.Equal(t, want, kube.OwnCordon(slim.(*corev1.Node)), manager)
	}
}
