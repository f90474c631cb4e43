package kube

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestMonImage(t *testing.T) {
	pod := func(containers ...corev1.Container) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: containers}}
	}
	require.Equal(t, "ceph:2", monImage(pod(corev1.Container{Name: "proxy", Image: "proxy:1"},
		corev1.Container{Name: "mon", Image: "ceph:2"})))
	require.Equal(t, "ceph:2", monImage(pod(corev1.Container{Name: "ceph-mon", Image: "ceph:2"},
		corev1.Container{Name: "proxy", Image: "proxy:1"})))
	require.Empty(t, monImage(pod()))
}
