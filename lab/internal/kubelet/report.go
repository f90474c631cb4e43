package kubelet

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	requestTimeout = 5 * time.Second
	reportRetry    = 200 * time.Millisecond
)

// reportChanges keeps the API server informed until the pod is removed, which may be long after it has ended.
func (p *pod) reportChanges() {
	for {
		select {
		case <-p.dirty:
		case <-p.removed:
			return
		}
		for p.report() != nil {
			select {
			case <-time.After(reportRetry):
			case <-p.removed:
				return
			}
		}
	}
}

// report sends the status if it is not what was sent last. A node that is cut off sends nothing; when it is back it
// calls reportAgain.
func (p *pod) report() error {
	p.reporting.Lock()
	defer p.reporting.Unlock()
	if p.node.silent() {
		return nil
	}
	state := p.snapshot()
	status := state.status(metav1.Now())
	if p.sent != nil && sameStatus(*p.sent, status) {
		return nil
	}
	patch, err := statusPatch(state.spec, status)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	_, err = p.node.kubelet.Client.CoreV1().Pods(state.spec.Namespace).Patch(ctx, state.spec.Name,
		types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // the pod is gone, or another one has its name
		return nil
	}
	if err != nil {
		slog.Warn("status not reported", "node", p.node.name, "pod", state.spec.Namespace+"/"+state.spec.Name, "error", err)
		return err
	}
	p.sent = &status
	p.mu.Lock()
	p.state.reported = status.Conditions
	p.mu.Unlock()
	return nil
}

// reportAgain sends the status whatever was sent before: while the node was away, others may have changed it.
func (p *pod) reportAgain() {
	p.reporting.Lock()
	p.sent = nil
	p.reporting.Unlock()
	p.changed(func() {})
}

// contradict reports again if somebody else says that the pod is ready, or that it is not: the node lifecycle
// controller does, of all pods of a node whose heartbeats were late.
func (p *pod) contradict(said corev1.PodStatus) {
	p.reporting.Lock()
	sent := p.sent
	p.reporting.Unlock()
	if sent != nil && readyIn(*sent) != readyIn(said) {
		p.reportAgain()
	}
}

func readyIn(s corev1.PodStatus) bool {
	return slices.ContainsFunc(s.Conditions,
		func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

// statusPatch touches only what a kubelet owns, so that conditions of others, as DisruptionTarget of the eviction API,
// survive. Addresses are lists that would be merged: a restarted pod has a new one instead.
func statusPatch(pod *corev1.Pod, status corev1.PodStatus) ([]byte, error) {
	fields := map[string]any{
		"observedGeneration": status.ObservedGeneration, "phase": status.Phase, "message": status.Message,
		"conditions":            status.Conditions,
		"initContainerStatuses": status.InitContainerStatuses, "containerStatuses": status.ContainerStatuses,
		"startTime": status.StartTime,
		"hostIP":    status.HostIP, "hostIPs": replaceList(status.HostIPs), "podIP": status.PodIP,
		"podIPs": replaceList(status.PodIPs),
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": fields})
}

func replaceList[T any](items []T) []any {
	list := []any{map[string]string{"$patch": "replace"}}
	for _, item := range items {
		list = append(list, item)
	}
	return list
}
