package kubelet

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podState is what the status of a pod follows from.
type podState struct {
	spec       *corev1.Pod
	reported   []corev1.PodCondition // as last reported, for the times at which they changed
	ip         string
	started    metav1.Time
	inits      []containerState
	containers []containerState
	failure    string // why the pod as a whole failed
	waiting    string // why its containers cannot be started yet
	stopping   bool
}

// containerState is one container's part of it.
type containerState struct {
	name, image string
	sidecar     bool // an init container that keeps running
	pid         int
	state       corev1.ContainerState
	last        corev1.ContainerState
	ready       bool
	started     bool
	restarts    int32
}

// status computes the part of the status that is a kubelet's to report. now is the time of conditions that changed.
func (p podState) status(now metav1.Time) corev1.PodStatus {
	initialized := !incomplete(p.inits)
	ready := initialized && p.failure == "" && all(p.containers, func(c containerState) bool { return c.ready })
	phase := p.phase(initialized)
	done := phase == corev1.PodSucceeded || phase == corev1.PodFailed
	reason := "ContainersNotReady"
	if phase == corev1.PodSucceeded {
		reason = "PodCompleted"
	}
	status := corev1.PodStatus{
		ObservedGeneration: p.spec.Generation, Phase: phase, Message: p.failure,
		HostIP: hostIP, HostIPs: []corev1.HostIP{{IP: hostIP}}, StartTime: &p.started,
		InitContainerStatuses: statuses(p.inits), ContainerStatuses: statuses(p.containers),
	}
	if p.ip != "" {
		status.PodIP, status.PodIPs = p.ip, []corev1.PodIP{{IP: p.ip}}
	}
	message := p.waiting
	if message == "" && !ready {
		message = notReady(p.containers)
	}
	set := func(kind corev1.PodConditionType, ok bool, reason, message string) {
		status.Conditions = append(status.Conditions,
			condition(p.reported, p.spec.Generation, kind, ok, reason, message, now))
	}
	set(corev1.PodReadyToStartContainers, p.ip != "" && !done, "", "")
	set(corev1.PodInitialized, initialized, "ContainersNotInitialized", notReady(p.inits))
	set(corev1.ContainersReady, ready, reason, message)
	gate := closedGate(p.spec)
	if ready && gate != "" {
		reason, message = "ReadinessGatesNotReady", "condition "+gate+" is not True"
	}
	set(corev1.PodReady, ready && gate == "", reason, message)
	return status
}

func (p podState) phase(initialized bool) corev1.PodPhase {
	if p.failure != "" {
		return corev1.PodFailed
	}
	ended, failed, running := 0, 0, 0
	for _, c := range p.containers {
		switch t := c.state.Terminated; {
		case t != nil:
			ended++
			if t.ExitCode != 0 {
				failed++
			}
		case c.state.Running != nil, c.restarts > 0:
			running++
		}
	}
	switch {
	case ended == len(p.containers) && ended > 0 && p.restarts(failed):
		return corev1.PodRunning // the next attempt is about to begin
	case ended == len(p.containers) && failed > 0:
		return corev1.PodFailed
	case ended == len(p.containers):
		return corev1.PodSucceeded
	case p.stopping && !initialized:
		return corev1.PodFailed
	case running > 0 || ended > 0:
		return corev1.PodRunning
	}
	return corev1.PodPending
}

// restarts tells whether containers that have ended are started again. failed is how many of them ended badly.
func (p podState) restarts(failed int) bool {
	switch p.spec.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return failed > 0 && !p.stopping
	default:
		return !p.stopping
	}
}

// incomplete tells whether an init container has yet to succeed, or a sidecar to start.
func incomplete(inits []containerState) bool {
	return !all(inits, func(c containerState) bool {
		if c.sidecar {
			return c.started
		}
		return c.state.Terminated != nil && c.state.Terminated.ExitCode == 0
	})
}

func all(containers []containerState, f func(containerState) bool) bool {
	for _, c := range containers {
		if !f(c) {
			return false
		}
	}
	return true
}

func notReady(containers []containerState) string {
	var names []string
	for _, c := range containers {
		if !c.ready {
			names = append(names, c.name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "containers with unready status: [" + strings.Join(names, " ") + "]"
}

func statuses(containers []containerState) []corev1.ContainerStatus {
	var list []corev1.ContainerStatus
	for _, c := range containers {
		s := corev1.ContainerStatus{
			Name: c.name, Image: c.image, ImageID: "process://", State: c.state, LastTerminationState: c.last,
			Ready: c.ready, Started: &c.started, RestartCount: c.restarts,
		}
		if c.pid != 0 {
			s.ContainerID = fmt.Sprintf("process://%d", c.pid)
		}
		list = append(list, s)
	}
	return list
}

// closedGate names a readiness gate that is not open, if there is one.
func closedGate(pod *corev1.Pod) string {
	for _, g := range pod.Spec.ReadinessGates {
		open := false
		for _, c := range pod.Status.Conditions {
			open = open || c.Type == g.ConditionType && c.Status == corev1.ConditionTrue
		}
		if !open {
			return string(g.ConditionType)
		}
	}
	return ""
}

func condition(
	old []corev1.PodCondition, generation int64, kind corev1.PodConditionType, ok bool, reason, message string,
	now metav1.Time,
) corev1.PodCondition {
	c := corev1.PodCondition{
		Type: kind, ObservedGeneration: generation, Status: corev1.ConditionTrue,
		LastTransitionTime: now,
	}
	if !ok {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, reason, message
	}
	for _, o := range old {
		if o.Type == kind && o.Status == c.Status {
			c.LastTransitionTime = o.LastTransitionTime
		}
	}
	return c
}

// sameStatus compares without the times at which conditions changed, which would never be equal before they are
// written.
func sameStatus(a, b corev1.PodStatus) bool {
	a, b = *a.DeepCopy(), *b.DeepCopy()
	for _, s := range []*corev1.PodStatus{&a, &b} {
		for i := range s.Conditions {
			s.Conditions[i].LastTransitionTime = metav1.Time{}
		}
	}
	return equality.Semantic.DeepEqual(a, b)
}
