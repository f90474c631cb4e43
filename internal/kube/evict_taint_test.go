package kube

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lockkeeper/lockkeeper/activities"
)

// TestWhatATaintDrivesOffIsEvicted: those that do not tolerate it, whoever made them and whatever data they lose, and
// nobody else. A drain would leave a DaemonSet's pod where it is.
func TestWhatATaintDrivesOffIsEvicted(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	node.Spec.Taints = []corev1.Taint{{Key: "repair", Effect: corev1.TaintEffectNoExecute}}
	pod := func(name string, edit func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: name}}
		p.Spec.NodeName = "node-a"
		if edit != nil {
			edit(p)
		}
		return p
	}
	client := fake.NewClientset(node, pod("bare", nil),
		pod("of-a-daemonset", func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "osd", Controller: new(true)}}
		}),
		pod("scratch", func(p *corev1.Pod) {
			p.Namespace = "shop"
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}),
		pod("stays", func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}),
		pod("ended", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		pod("mirror", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }),
	)
	var evicted []string
	client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		create, ok := a.(clienttesting.CreateAction)
		if !ok || a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		if e, is := create.GetObject().(*policyv1.Eviction); is {
			evicted = append(evicted, e.Name)
		}
		return true, nil, nil
	})
	c := &Cluster{typed: client}
	c.evictions.Store(&policyv1.SchemeGroupVersion)
	in := activities.Eviction{Node: "node-a", Taint: "repair"}
	p, err := c.EvictOnce(t.Context(), in)
	require.NoError(t, err)
	slices.Sort(evicted)
	require.Equal(t, []string{"bare", "of-a-daemonset", "scratch"}, evicted)
	require.Equal(t, 3, p.Remaining)

	evicted, in.Taint = nil, "another"
	p, err = c.EvictOnce(t.Context(), in)
	require.NoError(t, err)
	require.Empty(t, evicted)
	require.Zero(t, p.Remaining)
}
