package kube

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
)

// TestFindPods: a daemon's pods are those that the policies of its namespace select, or Rook's where there is none.
func TestFindPods(t *testing.T) {
	pod := func(name string, labels map[string]string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: labels}}
	}
	ended := pod("ended", map[string]string{"app": "rook-ceph-osd", "ceph-osd-id": "3"})
	ended.Status.Phase = corev1.PodFailed
	all := []corev1.Pod{
		ended,
		pod("rooks-osd", map[string]string{"app": "rook-ceph-osd", "ceph-osd-id": "3"}),
		pod("rooks-mon", map[string]string{"app": "rook-ceph-mon", "ceph_daemon_id": "a"}),
		pod("rooks-canary", map[string]string{"app": "rook-ceph-mon", "ceph_daemon_id": "a", "mon_canary": "true"}),
		pod("other-osd", map[string]string{"application": "ceph", "component": "osd", "number": "3"}),
		pod("other-mon", map[string]string{"application": "ceph", "component": "mon", "ceph_daemon_id": "a"}),
	}
	others := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "others"}}
	others.Spec.Ceph = &v1alpha1.CephSpec{
		OSDs: v1alpha1.OSDSelection{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"component": "osd"}}, IDLabel: "number",
		},
		Daemons: v1alpha1.DaemonSelections{
			Mon: &metav1.LabelSelector{MatchLabels: map[string]string{"component": "mon"}},
		},
	}
	rooks := &v1alpha1.MaintenancePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rooks"}}
	for name, c := range map[string]struct {
		policies []client.Object
		want     map[string][]string
	}{
		"no policy": {nil, map[string][]string{
			"osd.3": {"rooks-osd"}, "mon.a": {"rooks-mon"}, "osd.4": nil,
		}},
		"another one's labels": {[]client.Object{others}, map[string][]string{
			"osd.3": {"other-osd"}, "mon.a": {"other-mon"}, "mon.b": nil,
		}},
		"two policies": {[]client.Object{others, rooks}, map[string][]string{
			"osd.3": {"other-osd", "rooks-osd"}, "mon.a": {"other-mon", "rooks-mon"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			typed := fake.NewClientset()
			for i := range all {
				require.NoError(t, typed.Tracker().Add(&all[i]))
			}
			cluster := NewFor(typed, clientfake.NewClientBuilder().WithScheme(Scheme).WithObjects(c.policies...).Build())
			for what, want := range c.want {
				found, err := cluster.FindPods(t.Context(), "ns", what)
				require.NoError(t, err)
				var names []string
				for _, f := range found {
					names = append(names, f.Name)
				}
				require.ElementsMatch(t, want, names, what)
			}
		})
	}
}

// TestAWordIsTakenBack from the very pod that it was given for.
func TestAWordIsTakenBack(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "osd-3", UID: "1", Annotations: map[string]string{"other": "stays"},
	}}
	typed := fake.NewClientset(p)
	c := NewFor(typed, clientfake.NewClientBuilder().WithScheme(Scheme).Build())
	said := func() map[string]string {
		now, err := typed.CoreV1().Pods("ns").Get(t.Context(), "osd-3", metav1.GetOptions{})
		require.NoError(t, err)
		return now.Annotations
	}
	ref := PodRef{Namespace: "ns", Name: "osd-3", UID: "1"}
	require.NoError(t, c.LetGo(t.Context(), ref, "ada", "hangs"))
	require.Equal(t, map[string]string{"other": "stays", GoNowAnnotation: "1 ada: hangs"}, said())
	require.NoError(t, c.TakeBack(t.Context(), ref))
	require.Equal(t, map[string]string{"other": "stays"}, said())
	require.NoError(t, c.TakeBack(t.Context(), PodRef{Namespace: "ns", Name: "gone", UID: "2"}))
}

// TestLetGo reads a word as the guard does: it counts for the pod that it was given for.
func TestLetGo(t *testing.T) {
	for word, want := range map[string]bool{
		"": false, "1 ada: hangs": true, "12 ada: hangs": false, "1": false, "2 ada: hangs": false,
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1", Annotations: map[string]string{GoNowAnnotation: word}}}
		require.Equal(t, want, LetGo(p), word)
	}
}
