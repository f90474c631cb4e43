package longhorncluster

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/longhorn"
)

// marker notes whose marks are set and taken away.
type marker struct {
	Kubernetes
	set, gone []string
}

func (m *marker) MarkPods(
	_ context.Context, _ *v1alpha1.MaintenancePolicy, pods []storageview.Pod, _ func(int),
) (int, error) {
	for _, p := range pods {
		m.set = append(m.set, p.Name)
	}
	return len(pods), nil
}

func (m *marker) UnmarkPods(
	_ context.Context, _ *v1alpha1.MaintenancePolicy, pods []storageview.Pod, _ func(int),
) (int, error) {
	for _, p := range pods {
		m.gone = append(m.gone, p.Name)
	}
	return len(pods), nil
}

// TestMarksKnowTheHolders: a node that a job empties counts as leaving before it is cordoned. What the look calls stale
// has to be what Unmark takes away, or both budgets stay closed for as long as the job.
func TestMarksKnowTheHolders(t *testing.T) {
	const namespace = "longhorn-system"
	var objects []client.Object
	add := func(kind, name, rest string) {
		o := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(rest), &o.Object))
		o.SetAPIVersion("longhorn.io/v1beta2")
		o.SetKind(kind)
		o.SetNamespace(namespace)
		o.SetName(name)
		objects = append(objects, o)
	}
	add("Setting", "current-longhorn-version", "value: v1.10.0")
	add("Setting", "kubernetes-cluster-autoscaler-enabled", `value: "true"`)
	for _, n := range []string{"a", "b"} {
		add("InstanceManager", "im-"+n, "spec: {nodeID: "+n+", type: aio}\nstatus: {currentState: running}")
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "im-" + n, UID: "u",
				Labels: map[string]string{kube.LonghornComponent: kube.InstanceManager, kube.LonghornNode: n},
			},
			Spec: corev1.PodSpec{NodeName: n},
			Status: corev1.PodStatus{
				Phase:      corev1.PodRunning,
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			},
		}
		seen := kube.StoragePod(pod, "")
		if n == "b" { // it was marked before somebody drained its node
			pod.Labels[storageview.MarkLabel] = seen.Mark()
		}
		objects = append(objects, pod, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: n},
			Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		})
	}
	for _, c := range []struct {
		held            []string
		stale           int
		set, goneAtLast []string
	}{
		{nil, 0, []string{"im-a"}, nil},
		{[]string{"b"}, 1, []string{"im-a"}, []string{"im-b"}},
		{[]string{"a", "b"}, 1, nil, []string{"im-b"}},
	} {
		t.Run(fmt.Sprint(c.held), func(t *testing.T) {
			m := &marker{}
			x := &cluster{
				kube: m, policy: &v1alpha1.MaintenancePolicy{
					Spec: v1alpha1.MaintenancePolicySpec{Longhorn: &v1alpha1.LonghornSpec{}},
				},
				reader: New(fake.NewClientBuilder().WithScheme(kube.Scheme).WithObjects(objects...).Build(), namespace),
			}
			s, err := x.look(t.Context(), x.reader, longhorn.Turns{Held: c.held})
			require.NoError(t, err)
			require.Equal(t, c.stale, s.marks().Stale)
			_, err = x.Mark(t.Context(), activities.Marking{Held: c.held}, nil)
			require.NoError(t, err)
			_, err = x.Unmark(t.Context(), activities.Unmarking{Held: c.held}, nil)
			require.NoError(t, err)
			require.Equal(t, c.set, m.set)
			require.Equal(t, c.goneAtLast, m.gone)
		})
	}
}
