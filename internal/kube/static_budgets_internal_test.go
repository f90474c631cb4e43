package kube

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestHostsOfOtherDaemons: where they are is known as long as all that are wanted serve.
func TestHostsOfOtherDaemons(t *testing.T) {
	t.Parallel()
	pod := func(name, node string, ready corev1.ConditionStatus) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
			},
		}
	}
	a, b := pod("mgr-a", "node-2", corev1.ConditionTrue), pod("rgw-b", "node-1", corev1.ConditionTrue)
	goes := *b.DeepCopy()
	goes.DeletionTimestamp = ptr.To(metav1.Now())
	var many []corev1.Pod
	for i := range mostHosts + 1 {
		many = append(many, pod("rgw-"+string(rune('A'+i)), "node-"+string(rune('A'+i)), corev1.ConditionTrue))
	}
	for name, c := range map[string]struct {
		pods  []corev1.Pod
		wants int
		nodes []string
		known bool
	}{
		"none":                   {nil, 0, nil, true},
		"all serve":              {[]corev1.Pod{a, b}, 2, []string{"node-1", "node-2"}, true},
		"one twice in the lists": {[]corev1.Pod{a, b, a}, 2, []string{"node-1", "node-2"}, true},
		"one not ready":          {[]corev1.Pod{a, pod("rgw-b", "node-1", corev1.ConditionFalse)}, 2, nil, false},
		"one is going":           {[]corev1.Pod{a, goes}, 2, nil, false},
		"one is missing":         {[]corev1.Pod{a}, 2, nil, false},
		"one too many":           {[]corev1.Pod{a, b}, 1, nil, false},
		"too many to name":       {many, len(many), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes, known := hostsOf(c.pods, map[string]workload{"Deployment/all": {replicas: c.wants}})
			require.Equal(t, c.known, known)
			require.Equal(t, c.nodes, nodes)
		})
	}
}
