package kubelet

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LoseNode makes a node silent. Its processes end, as when power is lost, or go on, as when the network is.
func (k *Kubelet) LoseNode(name string, keepProcesses bool) error {
	return k.with(name, func(n *node) error {
		n.setCondition(lost)
		if !keepProcesses {
			n.powerOff()
		}
		return nil
	})
}

// ReturnNode brings back a node from whatever it is in: lost, hung or removed.
func (k *Kubelet) ReturnNode(name string) error {
	return k.with(name, func(n *node) error {
		n.comeBack()
		return nil
	})
}

// RebootNode ends all processes of a node, keeps it silent for a while, and starts it with a new boot ID.
func (k *Kubelet) RebootNode(ctx context.Context, name string, down time.Duration) error {
	return k.with(name, func(n *node) error {
		n.setCondition(lost)
		n.powerOff()
		select {
		case <-time.After(down):
		case <-ctx.Done():
			return ctx.Err()
		}
		n.comeBack()
		return nil
	})
}

// HangNode stops everything on a node where it is.
func (k *Kubelet) HangNode(name string) error {
	return k.with(name, func(n *node) error {
		n.setCondition(hung)
		for _, p := range n.allPods() {
			p.signal(syscall.SIGSTOP)
		}
		return nil
	})
}

// ResumeNode ends HangNode.
func (k *Kubelet) ResumeNode(name string) error {
	return k.with(name, func(n *node) error {
		n.comeBack()
		return nil
	})
}

// SignalPod sends a signal to all processes of a pod. What follows is up to its restart policy.
func (k *Kubelet) SignalPod(namespace, name string, sig syscall.Signal) error {
	for _, n := range k.allNodes() {
		for _, p := range n.allPods() {
			if object := p.snapshot().spec; object.Namespace == namespace && object.Name == name {
				p.signal(sig)
				return nil
			}
		}
	}
	return fmt.Errorf("no node runs a pod %s/%s", namespace, name)
}

func (n *node) comeBack() {
	for _, p := range n.allPods() {
		p.signal(syscall.SIGCONT)
	}
	n.mu.Lock()
	n.condition, n.since = running, metav1.Now()
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
	n.syncAll()
}

func (k *Kubelet) with(name string, f func(*node) error) error {
	n := k.node(name)
	if n == nil {
		var names []string
		for _, n := range k.allNodes() {
			names = append(names, n.name)
		}
		return fmt.Errorf("no node %q: there are %s", name, strings.Join(names, ", "))
	}
	return f(n)
}

// NodeState tells how a node is, for `lab status`.
type NodeState struct {
	Name   string `json:"name"`
	Zone   string `json:"zone"`
	State  string `json:"state"`
	BootID string `json:"bootID"`
	Pods   int    `json:"pods"`
}

// StateRunning is the state of a node that nothing is wrong with.
const StateRunning = string(running)

// Nodes tells how the nodes are.
func (k *Kubelet) Nodes() []NodeState {
	var states []NodeState
	for _, n := range k.allNodes() {
		n.mu.Lock()
		states = append(states, NodeState{
			Name: n.name, Zone: n.zone, State: string(n.condition), BootID: n.bootID,
			Pods: len(n.pods),
		})
		n.mu.Unlock()
	}
	return states
}
