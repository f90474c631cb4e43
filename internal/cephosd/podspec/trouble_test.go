package podspec_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
)

// Every wait for a pod says what the pod itself waits for.
func TestTrouble(t *testing.T) {
	container := func(ready bool, state corev1.ContainerState) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "osd", Ready: ready, State: state}}}
	}
	waits := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	last := func(code int32, message string) corev1.PodStatus {
		s := container(false, waits("CrashLoopBackOff"))
		s.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: code,
			Message:  message,
		}
		return s
	}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	condition := func(c corev1.PodConditionType, is corev1.ConditionStatus, message string) corev1.PodStatus {
		return corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: c, Status: is, Message: message}}}
	}
	for name, c := range map[string]struct {
		status corev1.PodStatus
		want   string
	}{
		"ready":    {condition(corev1.PodReady, corev1.ConditionTrue, ""), ""},
		"no image": {container(false, waits("ErrImagePull")), "its container osd waits: ErrImagePull"},
		"no node":  {condition(corev1.PodScheduled, corev1.ConditionFalse, "0/6 nodes"), "it has no node: 0/6 nodes"},
		"crashes": {
			last(1, ""), "its container osd waits: CrashLoopBackOff; it ended with 1, its log says why: after a rotation of " +
				"keys it may have an old one",
		},
		"crashed, and is back": {
			func() corev1.PodStatus {
				s := last(2, "")
				s.ContainerStatuses[0].State = runs
				return s
			}(), "its container osd runs and does not serve yet; before this start it ended with 2, its log says why",
		},
		"has too little memory": {
			func() corev1.PodStatus {
				s := last(137, "")
				s.ContainerStatuses[0].LastTerminationState.Terminated.Reason = "OOMKilled"
				return s
			}(), "its container osd waits: CrashLoopBackOff; it ended with 137 (OOMKilled)",
		},
		"says much in another script": {
			last(2, strings.Repeat("ж", 200)+"x"),
			"its container osd waits: CrashLoopBackOff; it ended with 2: " + strings.Repeat("ж", 149) + "x",
		},
		"is killed": {
			last(137, ""),
			"its container osd waits: CrashLoopBackOff; it ended with 137, its log says why",
		},
		"crashes, and says why": {
			last(1, "debug2026-11-24T00:31:46.513+0000 7f1c2b7fe640 -1 monclient(hunting): handle_auth_bad_method server "+
				"allowed_methods [2]\n"+
				"2026-11-24T00:31:46.514+0000 7f1c2b7fe640 -1 monclient(hunting): handle_auth_bad_method server allowed_methods "+
				"[2]\nfailed to fetch mon config\n"),
			"its container osd waits: CrashLoopBackOff; it ended with 1: monclient(hunting): handle_auth_bad_method server " +
				"allowed_methods [2]; failed to fetch mon config",
		},
		"ended well": {last(0, "bye"), "its container osd waits: CrashLoopBackOff"},
		"says much": {
			last(2, strings.Repeat("x", 2048)),
			"its container osd waits: CrashLoopBackOff; it ended with 2: " + strings.Repeat("x", 300),
		},
		"runs":            {container(false, runs), "its container osd runs and does not serve yet"},
		"is initialising": {container(false, waits("PodInitializing")), "its container osd does not run"},
		"has a gate":      {container(true, runs), "its containers are ready, and the kubelet has not said so of the pod"},
		"just made":       {corev1.PodStatus{}, "its containers do not run yet"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, podspec.Trouble(&corev1.Pod{Status: c.status}))
		})
	}
}
