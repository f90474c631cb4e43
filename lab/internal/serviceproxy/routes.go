// Package serviceproxy is the lab's service network: it listens at the addresses of Services, which are loopback
// addresses, and passes each connection on to one of the Service's pods.
//
// It finds the pods by the Service's selector, since there are no endpoints to read: the API server refuses loopback
// addresses there. A Service without a pod refuses connections. A connection stays with its pod whatever becomes of the
// Service, and ends with the process that serves it.
package serviceproxy

import (
	"maps"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// routes are the addresses at which Services serve, each with the addresses of the pods behind it. Nothing is routed
// for a Service that has no pod to serve it.
func routes(services []*corev1.Service, pods []*corev1.Pod) map[string][]string {
	all := map[string][]string{}
	for _, s := range services {
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone || len(s.Spec.Selector) == 0 ||
			s.DeletionTimestamp != nil {
			continue
		}
		behind := serving(s, pods)
		for _, port := range s.Spec.Ports {
			if port.Protocol != corev1.ProtocolTCP && port.Protocol != "" {
				continue
			}
			if to := backends(behind, port); len(to) > 0 {
				all[address(s.Spec.ClusterIP, port.Port)] = to
			}
		}
	}
	return all
}

// serving are the pods that a Service sends connections to: those that are ready. With publishNotReadyAddresses those
// that are not ready come next, and then those that are on their way out, since mons look for each other before any of
// them is ready; a real one would choose among all of these at random.
func serving(s *corev1.Service, pods []*corev1.Pod) []*corev1.Pod {
	selector := labels.SelectorFromSet(s.Spec.Selector)
	ranks := map[int][]*corev1.Pod{}
	for _, p := range pods {
		if p.Namespace != s.Namespace || p.Status.PodIP == "" || !selector.Matches(labels.Set(p.Labels)) ||
			p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		switch publish := s.Spec.PublishNotReadyAddresses; {
		case p.DeletionTimestamp == nil && ready(p):
			ranks[0] = append(ranks[0], p)
		case p.DeletionTimestamp == nil && publish:
			ranks[1] = append(ranks[1], p)
		case publish:
			ranks[2] = append(ranks[2], p)
		}
	}
	for _, rank := range slices.Sorted(maps.Keys(ranks)) {
		return ranks[rank]
	}
	return nil
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// backends are where the pods serve a port of the Service.
func backends(pods []*corev1.Pod, port corev1.ServicePort) (to []string) {
	for _, p := range pods {
		target := port.TargetPort.IntVal
		if port.TargetPort.Type == intstr.String {
			target = named(p, port.TargetPort.StrVal)
		} else if target == 0 {
			target = port.Port
		}
		if target != 0 {
			to = append(to, address(p.Status.PodIP, target))
		}
	}
	slices.Sort(to)
	return to
}

// named is the port of that name; 0: the pod has none.
func named(p *corev1.Pod, name string) int32 {
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == name {
				return port.ContainerPort
			}
		}
	}
	return 0
}

func address(ip string, port int32) string { return net.JoinHostPort(ip, strconv.Itoa(int(port))) }
