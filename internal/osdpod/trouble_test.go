package osdpod_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lockkeeper/lockkeeper/internal/osdpod"
)

// Every wait for a pod says what the pod itself waits for.
func TestTrouble(t *testing.T) {
	container := func(ready bool, state corev1.ContainerState) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "osd", Ready: ready, State: state}}}
	}
	waits := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	condition := func(c corev1.PodConditionType, is corev1.ConditionStatus, message string) corev1.PodStatus {
		return corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: c, Status: is, Message: message}}}
	}
	for name, c := range map[string]struct {
		status corev1.PodStatus
		want   string
	}{
		"ready":           {condition(corev1.PodReady, corev1.ConditionTrue, ""), ""},
		"no image":        {container(false, waits("ErrImagePull")), "its container osd waits: ErrImagePull"},
		"no node":         {condition(corev1.PodScheduled, corev1.ConditionFalse, "0/6 nodes"), "it has no node: 0/6 nodes"},
		"runs":            {container(false, runs), "its container osd runs and does not serve yet"},
		"is initialising": {container(false, waits("PodInitializing")), "its container osd does not run"},
		"has a gate":      {container(true, runs), "its containers are ready, and the kubelet has not said so of the pod"},
		"just made":       {corev1.PodStatus{}, "its containers do not run yet"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, osdpod.Trouble(&corev1.Pod{Status: c.status}))
		})
	}
}
