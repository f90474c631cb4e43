package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/lab/internal/runtime"
)

// pod is one pod on one node, from the moment the node learns of it until its last process is gone.
type pod struct {
	node *node
	dir  string

	ctx    context.Context // ends when nothing more is to be started
	cancel context.CancelFunc
	done   chan struct{} // closed when no process is left and none will be started

	removal sync.Once
	removed chan struct{} // closed when the node forgets the pod

	mu         sync.Mutex
	state      podState
	containers []*container // in the order of state.inits, then state.containers
	killTimer  *time.Timer
	killAt     time.Time

	reporting sync.Mutex
	sent      *corev1.PodStatus
	dirty     chan struct{} // the status may have changed
}

// newPod continues where the reported status ends: a pod that was running before its node went down starts again.
func newPod(n *node, spec *corev1.Pod) *pod {
	p := &pod{
		node: n, done: make(chan struct{}), removed: make(chan struct{}), dirty: make(chan struct{}, 1),
		dir: n.path("pods", fmt.Sprintf("%s_%s_%s", spec.Namespace, spec.Name, spec.UID)),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.state = podState{spec: spec.DeepCopy(), started: metav1.Now(), reported: spec.Status.Conditions}
	if spec.Status.StartTime != nil {
		p.state.started = *spec.Status.StartTime
	}
	for i := range spec.Spec.InitContainers {
		c := &spec.Spec.InitContainers[i]
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		p.state.inits = append(p.state.inits, initialState(c, spec.Status.InitContainerStatuses, "PodInitializing", sidecar))
	}
	for i := range spec.Spec.Containers {
		c := &spec.Spec.Containers[i]
		p.state.containers = append(p.state.containers,
			initialState(c, spec.Status.ContainerStatuses, "ContainerCreating", false))
	}
	// The states have their final place in memory only now.
	for i := range p.state.inits {
		p.containers = append(p.containers, newContainer(p, &spec.Spec.InitContainers[i], &p.state.inits[i]))
	}
	for i := range p.state.containers {
		p.containers = append(p.containers, newContainer(p, &spec.Spec.Containers[i], &p.state.containers[i]))
	}
	return p
}

func initialState(c *corev1.Container, before []corev1.ContainerStatus, waiting string, sidecar bool) containerState {
	state := containerState{name: c.Name, image: c.Image, sidecar: sidecar, state: waitingState(waiting, "")}
	for _, s := range before {
		if s.Name != c.Name {
			continue
		}
		state.restarts, state.last = s.RestartCount, s.LastTerminationState
		if s.State.Running != nil {
			state.restarts++
			state.last = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "the node went down",
				StartedAt: s.State.Running.StartedAt, FinishedAt: metav1.Now(),
			}}
		}
	}
	return state
}

// run is the life of the pod.
func (p *pod) run() {
	defer close(p.done)
	defer p.close()
	go p.reportChanges()
	p.changed(func() {})
	volumes, ok := p.prepare()
	if !ok {
		return
	}
	go p.refresh()
	var sidecars sync.WaitGroup
	defer sidecars.Wait()
	sidecarCtx, stopSidecars := context.WithCancel(p.ctx)
	defer stopSidecars()
	inits := p.containers[:len(p.state.inits)]
	for _, c := range inits {
		c.volumes = volumes
		if c.state.sidecar {
			sidecars.Go(func() { c.keepRunning(sidecarCtx, corev1.RestartPolicyAlways) })
			if !c.awaitStarted(p.ctx) {
				return
			}
			continue
		}
		if !p.initialize(c) {
			return
		}
	}
	var mains sync.WaitGroup
	for _, c := range p.containers[len(inits):] {
		c.volumes = volumes
		mains.Go(func() { c.keepRunning(p.ctx, p.state.spec.Spec.RestartPolicy) })
	}
	mains.Wait()
	for _, c := range inits {
		if c.state.sidecar {
			go c.terminate(p.grace())
		}
	}
}

// initialize runs an init container until it succeeds, and tells whether it did.
func (p *pod) initialize(c *container) bool {
	policy := p.state.spec.Spec.RestartPolicy
	if policy == corev1.RestartPolicyAlways {
		policy = corev1.RestartPolicyOnFailure
	}
	code := c.keepRunning(p.ctx, policy)
	if p.ctx.Err() != nil {
		return false
	}
	if code != 0 {
		p.changed(func() { p.state.failure = fmt.Sprintf("init container %s: exit code %d", c.spec.Name, code) })
		return false
	}
	return true
}

// prepare gets the address and the volumes, however long that takes, and tells whether it could before the pod was
// stopped.
func (p *pod) prepare() (volumes map[string]string, ok bool) {
	spec := p.state.spec
	ip := hostIP
	if !spec.Spec.HostNetwork {
		ip = p.node.kubelet.addresses.take()
	}
	p.changed(func() { p.state.ip = ip })
	wait := 50 * time.Millisecond
	for {
		volumes, err := p.volumes()
		if err == nil {
			p.changed(func() { p.state.waiting = "" })
			return volumes, true
		}
		if p.ctx.Err() != nil {
			return nil, false
		}
		p.event(corev1.EventTypeWarning, "FailedMount", err.Error())
		p.changed(func() { p.state.waiting = err.Error() })
		select {
		case <-time.After(wait):
		case <-p.ctx.Done():
			return nil, false
		}
		wait = min(2*wait, 2*time.Second)
	}
}

func (p *pod) volumes() (map[string]string, error) {
	if err := os.MkdirAll(filepath.Join(p.dir, "rootfs"), 0o755); err != nil {
		return nil, err
	}
	v := runtime.Volumes{
		Source: objects{p.node.kubelet.Client, &p.node.kubelet.broken}, Disk: p.node.kubelet.Disk(p.node.name),
		Lab: p.node.kubelet.Lab,
	}
	return v.Prepare(p.ctx, p.withStatus(), filepath.Join(p.dir, "volumes"))
}

// volumeRefresh is how often Secrets, ConfigMaps and tokens in volumes are brought up to date.
const volumeRefresh = 30 * time.Second

func (p *pod) refresh() {
	tick := time.NewTicker(volumeRefresh)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !p.node.silent() {
				_, _ = p.volumes() // as it was is good enough until the next time
			}
		case <-p.ctx.Done():
			return
		}
	}
}

// update takes over a changed object; what runs keeps running.
func (p *pod) update(spec *corev1.Pod) {
	p.changed(func() { p.state.spec = spec.DeepCopy() })
}

// stop ends the pod: politely first, by force after grace. It does not wait, and a later call may shorten the grace.
func (p *pod) stop(grace time.Duration) {
	p.mu.Lock()
	first := !p.state.stopping
	p.state.stopping = true
	if at := time.Now().Add(grace); first || at.Before(p.killAt) {
		if p.killTimer != nil {
			p.killTimer.Stop()
		}
		p.killAt, p.killTimer = at, time.AfterFunc(grace, p.kill)
	}
	p.mu.Unlock()
	p.cancel()
	if first {
		for _, c := range p.containers {
			go c.terminate(grace)
		}
	}
}

// remove stops the pod and then forgets it, with all it left on the node. Until it is removed, a pod that has ended
// keeps its logs.
func (p *pod) remove(grace time.Duration) {
	p.stop(grace)
	p.removal.Do(func() {
		go func() {
			<-p.done
			p.node.ended(p)
			close(p.removed)
		}()
	})
}

// powerOff ends the pod as the death of its machine does: at once, and without a word to anybody.
func (p *pod) powerOff() {
	p.mu.Lock()
	p.state.stopping = true
	p.mu.Unlock()
	p.cancel()
	p.kill()
	<-p.done
	p.removal.Do(func() { close(p.removed) })
}

func (p *pod) kill() {
	for _, c := range p.containers {
		c.kill()
	}
}

func (p *pod) close() {
	p.mu.Lock()
	if p.killTimer != nil {
		p.killTimer.Stop()
	}
	p.mu.Unlock()
	for _, c := range p.containers {
		c.close()
	}
	p.node.kubelet.addresses.release(p.state.ip)
}

// signal sends a signal to all processes of the pod.
func (p *pod) signal(sig syscall.Signal) {
	for _, c := range p.containers {
		c.signal(sig)
	}
}

// changed changes the state, and has the status reported if that changed too.
func (p *pod) changed(change func()) {
	p.mu.Lock()
	change()
	p.mu.Unlock()
	select {
	case p.dirty <- struct{}{}:
	default:
	}
}

// snapshot is a copy of the state that nobody changes.
func (p *pod) snapshot() podState {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.state
	s.inits, s.containers = slices.Clone(s.inits), slices.Clone(s.containers)
	return s
}

// withStatus is the object with the addresses that its downward API shows.
func (p *pod) withStatus() *corev1.Pod {
	s := p.snapshot()
	o := s.spec.DeepCopy()
	o.Status.PodIP, o.Status.HostIP = s.ip, hostIP
	return o
}

func (p *pod) grace() time.Duration {
	if g := p.snapshot().spec.Spec.TerminationGracePeriodSeconds; g != nil {
		return time.Duration(*g) * time.Second
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

func (p *pod) hostname() string {
	spec := p.state.spec
	switch {
	case spec.Spec.HostNetwork:
		return p.node.name
	case spec.Spec.Hostname != "":
		return spec.Spec.Hostname
	}
	return spec.Name[:min(len(spec.Name), 63)]
}

func (p *pod) event(kind, reason, message string) {
	if !p.node.silent() {
		p.node.kubelet.events.Event(p.snapshot().spec, kind, reason, message)
	}
}

func waitingState(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}
