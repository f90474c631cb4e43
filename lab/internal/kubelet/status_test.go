package kubelet

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func container1(state string, exit int32, restarts int32) containerState {
	c := containerState{name: "c", restarts: restarts}
	switch state {
	case "waiting":
		c.state = waitingState("x", "")
	case "running":
		c.state.Running, c.started = &corev1.ContainerStateRunning{}, true
	case "ready":
		c.state.Running, c.started, c.ready = &corev1.ContainerStateRunning{}, true, true
	case "ended":
		c.state.Terminated = &corev1.ContainerStateTerminated{ExitCode: exit}
	}
	return c
}

func TestPhaseAndReadiness(t *testing.T) {
	waiting, running, ready := container1("waiting", 0, 0), container1("running", 0, 0), container1("ready", 0, 0)
	crashing, well, ill := container1("waiting", 0, 2), container1("ended", 0, 0), container1("ended", 1, 0)
	sidecar := ready
	sidecar.sidecar = true
	type list = []containerState
	for name, test := range map[string]struct {
		state podState
		phase corev1.PodPhase
		ready bool
	}{
		"about to start again": {
			podState{containers: list{ill}, spec: restarting(corev1.RestartPolicyAlways)},
			corev1.PodRunning, false,
		},
		"well, and starts again": {
			podState{containers: list{well}, spec: restarting(corev1.RestartPolicyAlways)},
			corev1.PodRunning, false,
		},
		"stopped for good": {podState{
			containers: list{ill}, spec: restarting(corev1.RestartPolicyAlways),
			stopping: true,
		}, corev1.PodFailed, false},
		"a job that tries again": {
			podState{containers: list{ill}, spec: restarting(corev1.RestartPolicyOnFailure)},
			corev1.PodRunning, false,
		},
		"a job that is done": {
			podState{containers: list{well}, spec: restarting(corev1.RestartPolicyOnFailure)},
			corev1.PodSucceeded, false,
		},
		"new":          {podState{containers: list{waiting}}, corev1.PodPending, false},
		"initializing": {podState{inits: list{running}, containers: list{waiting}}, corev1.PodPending, false},
		"one of two up": {
			podState{inits: list{well}, containers: list{ready, waiting}},
			corev1.PodRunning, false,
		},
		"up":              {podState{inits: list{well}, containers: list{ready, ready}}, corev1.PodRunning, true},
		"up with sidecar": {podState{inits: list{sidecar}, containers: list{ready}}, corev1.PodRunning, true},
		"probe says no":   {podState{containers: list{running}}, corev1.PodRunning, false},
		"crash loop":      {podState{containers: list{crashing}}, corev1.PodRunning, false},
		"one ended":       {podState{containers: list{well, ready}}, corev1.PodRunning, false},
		"all well":        {podState{containers: list{well, well}}, corev1.PodSucceeded, false},
		"one ill":         {podState{containers: list{well, ill}}, corev1.PodFailed, false},
		"init failed": {
			podState{inits: list{ill}, containers: list{waiting}, failure: "init"},
			corev1.PodFailed, false,
		},
		"stopped while initializing": {
			podState{inits: list{ill}, containers: list{waiting}, stopping: true},
			corev1.PodFailed, false,
		},
	} {
		if test.state.spec == nil {
			test.state.spec = restarting(corev1.RestartPolicyNever)
		}
		status := test.state.status(metav1.Now())
		if got := conditionOf(status, corev1.PodReady).Status == corev1.ConditionTrue; status.Phase != test.phase ||
			got != test.ready {
			t.Errorf("%s: %s, ready %t; want %s, %t", name, status.Phase, got, test.phase, test.ready)
		}
	}
}

func restarting(policy corev1.RestartPolicy) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: policy}}
}

func TestReadinessGate(t *testing.T) {
	spec := &corev1.Pod{Spec: corev1.PodSpec{ReadinessGates: []corev1.PodReadinessGate{{ConditionType: "gate"}}}}
	p := podState{spec: spec, containers: []containerState{container1("ready", 0, 0)}}
	if c := conditionOf(p.status(metav1.Now()), corev1.PodReady); c.Status != corev1.ConditionFalse ||
		c.Reason != "ReadinessGatesNotReady" {
		t.Errorf("closed: %+v", c)
	}
	spec.Status.Conditions = []corev1.PodCondition{{Type: "gate", Status: corev1.ConditionTrue}}
	if c := conditionOf(p.status(metav1.Now()), corev1.PodReady); c.Status != corev1.ConditionTrue {
		t.Errorf("open: %+v", c)
	}
}

func TestConditionsKeepTheTimeOfTheirLastChange(t *testing.T) {
	early, late := metav1.Unix(100, 0), metav1.Unix(200, 0)
	p := podState{spec: &corev1.Pod{}, containers: []containerState{container1("ready", 0, 0)}}
	before := p.status(early)
	p.reported = before.Conditions
	after := p.status(late)
	if !sameStatus(before, after) || conditionOf(after, corev1.PodReady).LastTransitionTime != early {
		t.Errorf("nothing changed, but got %+v", after.Conditions)
	}
	p.containers[0].ready = false
	after = p.status(late)
	if sameStatus(before, after) || conditionOf(after, corev1.PodReady).LastTransitionTime != late {
		t.Errorf("readiness changed, but got %+v", after.Conditions)
	}
}

func TestPatchLeavesConditionsOfOthersAlone(t *testing.T) {
	p := podState{
		spec: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}, ip: "127.64.0.1",
		containers: []containerState{container1("ready", 0, 0)},
	}
	p.spec.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	b, err := statusPatch(p.spec, p.status(metav1.Now()))
	if err != nil || !json.Valid(b) {
		t.Fatalf("%s: %v", b, err)
	}
	if s := string(b); strings.Contains(s, "DisruptionTarget") ||
		!strings.Contains(s, `"podIPs":[{"$patch":"replace"},{"ip":"127.64.0.1"}]`) || !strings.Contains(s, `"uid":"u"`) {
		t.Errorf("got %s", s)
	}
}

func conditionOf(status corev1.PodStatus, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}
