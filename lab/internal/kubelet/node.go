package kubelet

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// node is one machine.
type node struct {
	kubelet    *Kubelet
	name, zone string
	wake       chan struct{}      // ends a pause of the heartbeat
	end        context.CancelFunc // of the heartbeat

	adopted   bool                // somebody else made its Node, and it goes with it
	resources corev1.ResourceList // what it says it has; nil: what all nodes of the lab have

	mu         sync.Mutex
	condition  machine
	since      metav1.Time // when it last began to run
	bootID     string
	uid        types.UID // of the Node object, once registered
	registered bool
	pods       map[types.UID]*pod
}

// machine is how a node is.
type machine string

const (
	running machine = "Running"
	lost    machine = "Lost"    // cut off or without power: it hears nothing and says nothing
	hung    machine = "Hung"    // nothing on it moves
	removed machine = "Removed" // its Node object was deleted: like a machine that is gone
	stopped machine = "Stopped" // the lab is going down
)

func newNode(k *Kubelet, name, zone string) *node {
	return &node{
		kubelet: k, name: name, zone: zone, wake: make(chan struct{}, 1),
		condition: running, since: metav1.Now(), bootID: string(uuid.NewUUID()), pods: map[types.UID]*pod{},
	}
}

func (n *node) silent() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.condition != running
}

func (n *node) pod(uid types.UID) *pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods[uid]
}

func (n *node) allPods() []*pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.pods))
}

// sync makes the node do what the object of a pod asks for.
func (n *node) sync(object *corev1.Pod) {
	if n.silent() {
		return
	}
	p := n.pod(object.UID)
	switch {
	case object.DeletionTimestamp != nil && p == nil:
		go n.confirmDeletion(object)
	case object.DeletionTimestamp != nil:
		p.update(object)
		p.remove(deletionGrace(object))
	case object.Status.Phase == corev1.PodSucceeded, object.Status.Phase == corev1.PodFailed:
		if p != nil { // which may not know, if somebody else declared it failed
			p.stop(0)
		}
	case p != nil:
		p.update(object)
		go p.contradict(object.Status)
	default:
		n.run(object)
	}
}

// run starts a pod unless it runs already.
func (n *node) run(object *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.condition != running || n.pods[object.UID] != nil {
		return
	}
	p := newPod(n, object)
	n.pods[object.UID] = p
	go p.run()
}

// orphanGrace is what a pod gets whose object is gone.
const orphanGrace = time.Second

// forget ends a pod that the API server does not know any more.
func (n *node) forget(uid types.UID) {
	if p := n.pod(uid); p != nil && !n.silent() {
		p.remove(orphanGrace)
	}
}

// ended is called by a pod that is to be removed, when its last process is gone.
func (n *node) ended(p *pod) {
	_ = p.report() // what cannot be said now need not be said
	object := p.snapshot().spec
	if !n.silent() && object.DeletionTimestamp != nil {
		n.confirmDeletion(object)
	}
	n.mu.Lock()
	if n.pods[object.UID] == p {
		delete(n.pods, object.UID)
	}
	n.mu.Unlock()
	if !n.silent() { // otherwise it may run here again, and wants its volumes
		_ = os.RemoveAll(p.dir)
	}
}

// confirmDeletion lets the API server remove the object of a pod that has ended.
func (n *node) confirmDeletion(object *corev1.Pod) {
	now := int64(0)
	options := metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &object.UID}}
	for range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		err := n.kubelet.Client.CoreV1().Pods(object.Namespace).Delete(ctx, object.Name, options)
		cancel()
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || n.silent() {
			return
		}
		slog.Warn("pod not deleted", "node", n.name, "pod", object.Namespace+"/"+object.Name, "error", err)
		time.Sleep(reportRetry)
	}
}

func deletionGrace(object *corev1.Pod) time.Duration {
	if g := object.DeletionGracePeriodSeconds; g != nil {
		return time.Duration(*g) * time.Second
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// syncAll compares everything: after the node could not listen.
func (n *node) syncAll() {
	bound := n.kubelet.bound(n.name)
	for _, p := range n.allPods() {
		if object := p.snapshot().spec; bound[object.UID] == nil {
			p.remove(orphanGrace)
		} else {
			p.reportAgain()
		}
	}
	for _, object := range bound {
		n.sync(object)
	}
}

// deleted takes the node out of service: a machine whose Node object is gone is gone. It tells whether it was this
// node's object.
func (n *node) deleted(uid types.UID) (ours bool) {
	n.mu.Lock()
	ours = n.uid == uid
	n.mu.Unlock()
	if ours {
		n.terminate()
	}
	return ours
}

// terminate ends a machine: nothing of it comes back, whatever becomes of its Node object.
func (n *node) terminate() {
	n.mu.Lock()
	ours := n.condition != stopped
	if ours {
		n.condition, n.registered = removed, false
	}
	n.mu.Unlock()
	if ours {
		n.powerOff()
	}
}

// renew brings a removed node back in a zone of choice, and tells whether it was removed.
func (n *node) renew(zone string) bool {
	n.mu.Lock()
	ok := n.condition == removed
	if ok {
		n.zone = zone
	}
	n.mu.Unlock()
	if ok {
		n.comeBack()
	}
	return ok
}

// powerOff ends all pods at once. What they wrote to disk stays.
func (n *node) powerOff() {
	n.mu.Lock()
	pods := n.pods
	n.pods = map[types.UID]*pod{}
	n.bootID = string(uuid.NewUUID())
	n.mu.Unlock()
	var wg sync.WaitGroup
	for _, p := range pods {
		wg.Go(p.powerOff)
	}
	wg.Wait()
}

// shutDownGrace is what pods get when the lab goes down: enough for a daemon to close its files.
const shutDownGrace = 5 * time.Second

func (n *node) shutDown() {
	n.setCondition(stopped)
	for _, p := range n.allPods() {
		p.signal(syscall.SIGCONT) // a hung one could not end
		p.stop(shutDownGrace)
	}
	for _, p := range n.allPods() {
		<-p.done
	}
}

func (n *node) setCondition(m machine) {
	n.mu.Lock()
	n.condition = m
	n.mu.Unlock()
}
