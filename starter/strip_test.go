package starter

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
)

// Stripping must take nothing that a snapshot is made of.
func TestASnapshotOfStrippedObjectsIsTheSame(t *testing.T) {
	whole := cephOf(3, 4)
	whole.Nodes[0].Spec.Unschedulable = true
	whole.Nodes[1].Spec.Taints = []corev1.Taint{{Key: "karpenter.sh/disrupted", Effect: corev1.TaintEffectNoSchedule}}
	whole.Nodes[2].Status.Conditions = nil
	pending(&whole.Pods[0])
	whole.Pods[1].DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	whole.Pods[2].Annotations = map[string]string{"osd.rook.io/replace-in-progress": "true"}
	whole.Budgets = []policyv1.PodDisruptionBudget{
		{ObjectMeta: metav1.ObjectMeta{Name: "b", Generation: 7, ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "lockkeeper", Time: &metav1.Time{Time: time.Unix(1, 0)}},
			{Manager: "kubectl-edit", Time: &metav1.Time{Time: time.Unix(2, 0)}},
			{Manager: "kube-controller-manager", Time: &metav1.Time{Time: time.Unix(3, 0)}, Subresource: "status"},
		}}},
	}
	want := Take(whole, nil)
	require.Equal(t, "kubectl-edit", want.Budgets["b"].Writer)
	require.EqualValues(t, 7, want.Budgets["b"].Generation)
	require.Len(t, want.Nodes, 3)

	assert.Equal(t, want, Take(stripAll(t, whole), nil))
}

func TestWhatDoesNotMatterIsNoEvent(t *testing.T) {
	beat := func(at time.Time) *corev1.Node {
		n := readyNode("node-a")
		n.ResourceVersion = fmt.Sprint(at.Unix())
		n.Status.Conditions[0].LastHeartbeatTime = metav1.Time{Time: at}
		return n
	}
	before, now := stripped(t, beat(time.Unix(1, 0))), stripped(t, beat(time.Unix(2, 0)))
	assert.False(t, matters(before, now), "a heartbeat")
	now.Spec.Unschedulable = true
	assert.True(t, matters(before, now), "a cordon")

	policy := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Generation: 1, ResourceVersion: "1"}}
	reported := policy.DeepCopy()
	reported.ResourceVersion, reported.Status.MayDrain = "2", "no"
	assert.False(t, matters(policy, reported), "the keeper's own report")
	changed := policy.DeepCopy()
	changed.Generation = 2
	assert.True(t, matters(policy, changed), "a new spec")
}

// Ten thousand OSDs on a thousand nodes, with pods as large as Rook's: the watcher has to stay under 200 MB.
func TestTenThousandOSDsFitIntoMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("allocates for seconds")
	}
	before := heap()
	o := stripAll(t, cephOf(1000, 10))
	first := Take(o, nil)
	second := Take(o, &first)
	used := float64(heap()-before) / 1e6
	t.Logf("cache and snapshots of 10,000 OSDs: %.0f MB", used)
	assert.Less(t, used, 100.0)
	assert.True(t, Decide(&first, second).IsZero())
	runtime.KeepAlive(o)
}

func BenchmarkOneEventAmongTenThousandOSDs(b *testing.B) {
	o := stripAll(b, cephOf(1000, 10))
	before := Take(o, nil)
	o.Pods[5000].Status.Conditions[0].Status = corev1.ConditionFalse
	b.ResetTimer()
	for b.Loop() {
		now := Take(o, &before)
		if Decide(&before, now).IsZero() {
			b.Fatal("no reaction")
		}
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// cephOf is a Ceph cluster with pods that carry about as much as Rook's do.
func cephOf(nodes, osdsPerNode int) Objects {
	o := Objects{Policy: &v1alpha1.MaintenancePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "ceph"},
		Spec:       v1alpha1.MaintenancePolicySpec{Ceph: &v1alpha1.CephSpec{}},
	}}
	for n := range nodes {
		name := fmt.Sprintf("node-%d", n)
		o.Nodes = append(o.Nodes, *readyNode(name))
		for i := range osdsPerNode {
			id := n*osdsPerNode + i
			pod, d := osdPod(id, name), osdDeployment(id, name)
			bulk := corev1.Container{Name: "osd"}
			for e := range 40 {
				bulk.Env = append(bulk.Env, corev1.EnvVar{
					Name:  fmt.Sprintf("VARIABLE_%d", e),
					Value: fmt.Sprintf("value %d of %d", e, id),
				})
			}
			pod.Spec.Containers, d.Spec.Template.Spec.Containers = []corev1.Container{bulk}, []corev1.Container{bulk}
			for l := range 20 {
				pod.Labels[fmt.Sprintf("label-%d", l)] = fmt.Sprintf("value %d", id)
			}
			o.Pods, o.Deployments = append(o.Pods, *pod), append(o.Deployments, *d)
		}
	}
	return o
}

func stripped[O client.Object](t testing.TB, object O) O {
	t.Helper()
	s, err := strip(object)
	require.NoError(t, err)
	require.IsType(t, object, s)
	return s.(O)
}

func stripAll(t testing.TB, o Objects) Objects {
	t.Helper()
	out := Objects{Policy: o.Policy}
	for i := range o.Nodes {
		out.Nodes = append(out.Nodes, *stripped(t, &o.Nodes[i]))
	}
	for i := range o.Pods {
		out.Pods = append(out.Pods, *stripped(t, &o.Pods[i]))
	}
	for i := range o.Budgets {
		out.Budgets = append(out.Budgets, *stripped(t, &o.Budgets[i]))
	}
	out.Deployments = append(out.Deployments, stripDeployments(t, o.Deployments)...)
	return out
}

func stripDeployments(t testing.TB, in []appsv1.Deployment) []appsv1.Deployment {
	t.Helper()
	out := make([]appsv1.Deployment, 0, len(in))
	for i := range in {
		out = append(out, *stripped(t, &in[i]))
	}
	return out
}
