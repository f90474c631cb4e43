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
	in := activities.Eviction{Storage: []activities.StoragePods{
		{
			Namespace: "rook-ceph", Daemons: "app=rook-ceph-osd", Mons: "app=rook-ceph-mon", Managers: "app=rook-ceph-mgr",
		},
		{Namespace: "rook-b", Daemons: "app=rook-ceph-osd", Mons: "app=rook-ceph-mon"},
	}}
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

	monB, osdB := pod("rook-b", "rook-ceph-mon"), pod("rook-b", "rook-ceph-osd")
	last, err = lastToGo([]corev1.Pod{mon, monB, osdB}, in)
	require.NoError(t, err)
	require.False(t, last(&mon), "the OSDs that still run are of another storage cluster")
	require.True(t, last(&monB))

	in.Storage[0].Managers = ""
	last, err = lastToGo([]corev1.Pod{mgr, osd}, in)
	require.NoError(t, err)
	require.False(t, last(&mgr))

	in.Storage[0].Mons = "app in ("
	_, err = lastToGo([]corev1.Pod{mon}, in)
	require.ErrorContains(t, err, "spec.ceph.daemons.mon")
}
