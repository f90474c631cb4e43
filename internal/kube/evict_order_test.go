package kube

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/activities"
)

func TestMonsAndManagersGoAfterTheOSDsOfTheirNode(t *testing.T) {
	pod := func(namespace, app string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{"app": app}}}
	}
	in := activities.Eviction{
		Options: activities.EvictionOptions{StorageNamespace: "rook-ceph"},
		Daemons: "app=rook-ceph-osd", Mons: "app=rook-ceph-mon", Managers: "app=rook-ceph-mgr",
	}
	mon, mgr, osd, other := pod("rook-ceph", "rook-ceph-mon"), pod("rook-ceph", "rook-ceph-mgr"),
		pod("rook-ceph", "rook-ceph-osd"), pod("shop", "rook-ceph-mon")

	last, err := lastToGo([]corev1.Pod{mon, mgr, osd, other}, in)
	require.NoError(t, err)
	require.True(t, last(&mon))
	require.True(t, last(&mgr))
	require.False(t, last(&osd))
	require.False(t, last(&other), "of somebody else's namespace")

	last, err = lastToGo([]corev1.Pod{mon, other}, in)
	require.NoError(t, err)
	require.False(t, last(&mon), "the OSDs have stopped")

	in.Managers = ""
	last, err = lastToGo([]corev1.Pod{mgr, osd}, in)
	require.NoError(t, err)
	require.False(t, last(&mgr))

	in.Mons = "app in ("
	_, err = lastToGo([]corev1.Pod{mon}, in)
	require.ErrorContains(t, err, "spec.ceph.daemons.mon")
}
