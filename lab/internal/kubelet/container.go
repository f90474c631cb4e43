package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockkeeper/lockkeeper/lab/internal/image"
	"github.com/lockkeeper/lockkeeper/lab/internal/rootfs"
	"github.com/lockkeeper/lockkeeper/lab/internal/runtime"
)

// container is one container of a pod, over all its restarts.
type container struct {
	pod     *pod
	spec    *corev1.Container
	state   *containerState   // guarded by pod.mu
	volumes map[string]string // where the pod's volumes are

	mu      sync.Mutex
	sandbox *runtime.Sandbox
	process *os.Process // of the current attempt
	ended   chan struct{}
	env     []string
}

func newContainer(p *pod, spec *corev1.Container, state *containerState) *container {
	return &container{pod: p, spec: spec, state: state}
}

// keepRunning starts the container again as the policy says, until ctx ends, and returns the last exit code.
func (c *container) keepRunning(ctx context.Context, policy corev1.RestartPolicy) int {
	var pause backoff
	for {
		began := time.Now()
		cmd, err := c.create(ctx)
		if err != nil {
			c.setWaiting(waitingReason(err), err.Error())
			c.pod.event(corev1.EventTypeWarning, "Failed", err.Error())
		} else {
			code := c.attempt(ctx, cmd)
			if ctx.Err() != nil || policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure && code == 0 {
				return code
			}
		}
		wait := pause.next(time.Since(began))
		if err == nil {
			c.willRestart(wait)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			c.neverAgain()
			return -1
		}
	}
}

// create resolves everything that a start needs from elsewhere.
func (c *container) create(ctx context.Context) (*exec.Cmd, error) {
	p := c.pod
	object := p.withStatus()
	base := maps.Clone(p.node.kubelet.Env)
	base["HOSTNAME"], base["HOME"] = p.hostname(), c.workDir()
	env, err := runtime.Environment(ctx, object, c.spec, base, objects{p.node.kubelet.Client, &p.node.kubelet.broken})
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.workDir(), 0o755); err != nil {
		return nil, err
	}
	root, err := c.pull(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.createSandbox(object, root); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.env = runtime.EnvironmentList(env)
	c.mu.Unlock()
	return c.command(runtime.CommandLine(c.withEntrypoint(), env)), nil
}

// pullError is why a container's image cannot be had.
type pullError struct{ error }

func (e pullError) Unwrap() error { return e.error }

func waitingReason(err error) string {
	if pull := (pullError{}); errors.As(err, &pull) {
		return "ErrImagePull"
	}
	return "CreateContainerConfigError"
}

// pull returns the root filesystem of the container's image.
func (c *container) pull(ctx context.Context) (root string, err error) {
	if _, known := c.image(); known {
		return "", nil
	}
	release, err := image.Release(c.spec.Image)
	if err == nil {
		root, err = image.Root(ctx, release,
			func(progress string) { c.pod.event(corev1.EventTypeNormal, "Pulling", progress) })
	}
	if err != nil {
		return "", pullError{fmt.Errorf("pull image %q: %w", c.spec.Image, err)}
	}
	return root, nil
}

func (c *container) createSandbox(object *corev1.Pod, root string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sandbox != nil {
		return nil
	}
	mounts, err := runtime.Mounts(object, c.spec, c.volumes)
	if err != nil {
		return err
	}
	own, err := c.imageMounts()
	if err != nil {
		return err
	}
	mounts = append(own, mounts...)
	if mounts, err = c.withOwnFolders(mounts); err != nil {
		return err
	}
	if c.hasLastWord() {
		if err := os.WriteFile(c.lastWordFile(), nil, 0o666); err != nil {
			return err
		}
		mounts = append(mounts, rootfs.Mount{Source: c.lastWordFile(), Target: c.spec.TerminationMessagePath})
	}
	c.sandbox, err = runtime.NewSandbox(filepath.Join(c.pod.dir, "rootfs"), root, c.pod.hostname(), mounts)
	return err
}

// ownFolders are those that an image would bring along, where programs of the machine would meet: Ceph's daemons of the
// same name have the same socket.
var ownFolders = []string{"/run/ceph"}

// withOwnFolders gives a container folders of its own, unless the pod has something there.
func (c *container) withOwnFolders(mounts []rootfs.Mount) ([]rootfs.Mount, error) {
	for _, folder := range ownFolders {
		if slices.ContainsFunc(mounts, func(m rootfs.Mount) bool {
			target := strings.Replace(filepath.Clean(m.Target), "/var/run", "/run", 1)
			return target == folder || strings.HasPrefix(folder, target+"/")
		}) {
			continue
		}
		own := filepath.Join(c.pod.dir, "own", c.spec.Name, folder)
		if err := os.MkdirAll(own, 0o755); err != nil {
			return nil, err
		}
		mounts = append(mounts, rootfs.Mount{Source: own, Target: folder})
	}
	return mounts, nil
}

func (c *container) command(args []string) *exec.Cmd {
	cmd := &exec.Cmd{Args: args}
	c.place(cmd)
	return cmd
}

// place gives a command the container's environment and folder.
func (c *container) place(cmd *exec.Cmd) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cmd.Env = c.env
	if cmd.Dir = c.spec.WorkingDir; cmd.Dir == "" {
		cmd.Dir = c.workDir()
	}
}

// attempt runs the container once and returns its exit code.
func (c *container) attempt(ctx context.Context, cmd *exec.Cmd) int {
	log, err := c.openLog()
	if err == nil {
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
		err = c.sandbox.Start(cmd)
	}
	began := metav1.Now()
	if err != nil {
		c.pod.event(corev1.EventTypeWarning, "Failed", err.Error())
		c.terminated(corev1.ContainerStateTerminated{
			ExitCode: 128, Reason: "StartError", Message: err.Error(),
			StartedAt: began, FinishedAt: metav1.Now(),
		})
		return 128
	}
	ended := c.running(cmd.Process, began)
	if ctx.Err() != nil { // stopped while it was being started, and nobody knew whom to stop
		c.sandbox.Kill()
	}
	c.pod.event(corev1.EventTypeNormal, "Started", "Started container "+c.spec.Name)
	probing, stopProbing := context.WithCancel(ctx)
	go c.probe(probing)
	_ = cmd.Wait() // what happened is in the state
	stopProbing()
	c.sandbox.Kill() // what it left behind dies with it, as in a container
	close(ended)
	t := exitState(cmd.ProcessState)
	t.Message = cmp.Or(c.lastWord(), c.endOfLog(t.ExitCode))
	t.StartedAt, t.FinishedAt = began, metav1.Now()
	c.terminated(t)
	return int(t.ExitCode)
}

// hasLastWord tells whether a container may leave a message in its terminationMessagePath. Of daemons nobody expects
// one, and a file in /dev would cost each of them a folder of its own.
func (c *container) hasLastWord() bool {
	return c.spec.TerminationMessagePath != "" && c.pod.state.spec.Spec.RestartPolicy == corev1.RestartPolicyNever
}

func (c *container) lastWordFile() string { return filepath.Join(c.workDir(), "termination-message") }

// lastWord is what a container has left there, as much of it as a kubelet takes.
func (c *container) lastWord() string {
	const most = 4096
	if !c.hasLastWord() {
		return ""
	}
	said, err := os.ReadFile(c.lastWordFile())
	if err != nil {
		return ""
	}
	return string(said[:min(len(said), most)])
}

// endOfLog is what a container that failed wrote last, if its spec asks for it, as much of it as a kubelet takes.
func (c *container) endOfLog(exitCode int32) string {
	const most = 2048
	if exitCode == 0 || c.spec.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
		return ""
	}
	c.pod.mu.Lock()
	restarts := c.state.restarts
	c.pod.mu.Unlock()
	wrote, err := os.ReadFile(c.logFile(restarts))
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(string(wrote[max(0, len(wrote)-most):]), "")
}

func exitState(state *os.ProcessState) corev1.ContainerStateTerminated {
	t := corev1.ContainerStateTerminated{ExitCode: int32(state.ExitCode())}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		t.ExitCode, t.Signal = 128+int32(status.Signal()), int32(status.Signal())
	}
	t.Reason = "Completed"
	if t.ExitCode != 0 {
		t.Reason = "Error"
	}
	return t
}

func (c *container) running(process *os.Process, began metav1.Time) chan struct{} {
	ended := make(chan struct{})
	c.mu.Lock()
	c.process, c.ended = process, ended
	c.mu.Unlock()
	c.pod.changed(func() {
		c.state.pid = process.Pid
		c.state.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}}
	})
	return ended
}

func (c *container) terminated(t corev1.ContainerStateTerminated) {
	t.ContainerID = fmt.Sprintf("process://%d", c.state.pid)
	c.pod.changed(func() {
		c.state.state = corev1.ContainerState{Terminated: &t}
		c.state.ready, c.state.started = t.ExitCode == 0 && c.isInit(), false
	})
}

// isInit tells whether having ended well is what is expected of the container.
func (c *container) isInit() bool {
	for i := range c.pod.state.inits {
		if &c.pod.state.inits[i] == c.state {
			return !c.state.sidecar
		}
	}
	return false
}

func (c *container) willRestart(wait time.Duration) {
	c.pod.changed(func() {
		c.state.last = c.state.state
		c.state.restarts++
		c.state.state = waitingState("CrashLoopBackOff",
			fmt.Sprintf("back-off %s restarting container %s", wait, c.spec.Name))
	})
	if wait > 0 {
		c.pod.event(corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container "+c.spec.Name)
	}
}

// neverAgain says that the last end was the last.
func (c *container) neverAgain() {
	c.pod.changed(func() {
		if c.state.state.Waiting != nil && c.state.last.Terminated != nil {
			c.state.state = c.state.last
		}
	})
}

func (c *container) setWaiting(reason, message string) {
	c.pod.changed(func() { c.state.state = waitingState(reason, message) })
}

// terminate asks the container to end: first by its preStop hook, then by signal. After the grace period it is killed.
func (c *container) terminate(grace time.Duration) {
	c.mu.Lock()
	process, ended := c.process, c.ended
	c.mu.Unlock()
	if process == nil {
		return
	}
	kill := time.AfterFunc(grace, c.kill)
	defer kill.Stop()
	if hook := c.spec.Lifecycle; hook != nil && hook.PreStop != nil {
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		c.runHook(ctx, hook.PreStop)
		cancel()
	}
	_ = process.Signal(syscall.SIGTERM)
	<-ended
}

func (c *container) runHook(ctx context.Context, hook *corev1.LifecycleHandler) {
	var err error
	switch {
	case hook.Exec != nil:
		err = c.run(ctx, &exec.Cmd{Args: hook.Exec.Command})
	case hook.Sleep != nil:
		select {
		case <-time.After(time.Duration(hook.Sleep.Seconds) * time.Second):
		case <-ctx.Done():
		}
	case hook.HTTPGet != nil:
		err = runtime.Probe(ctx, &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: hook.HTTPGet}}, c.spec,
			c.pod.state.ip, nil)
	}
	if err != nil {
		c.pod.event(corev1.EventTypeWarning, "FailedPreStopHook", err.Error())
	}
}

// run runs another command in the running container.
func (c *container) run(ctx context.Context, cmd *exec.Cmd) error {
	sandbox := c.currentSandbox()
	if sandbox == nil {
		return errors.New("the container is not running")
	}
	if len(cmd.Args) == 0 {
		return errors.New("no command")
	}
	c.place(cmd)
	// Whoever inherited the output must not keep us waiting once the command itself has ended.
	cmd.WaitDelay = 100 * time.Millisecond
	if err := sandbox.Start(cmd); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer stop()
	switch err := cmd.Wait(); {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, exec.ErrWaitDelay):
		return nil // the command has ended well
	default:
		return err
	}
}

func (c *container) kill() {
	if s := c.currentSandbox(); s != nil {
		s.Kill()
	}
}

func (c *container) signal(sig syscall.Signal) {
	if s := c.currentSandbox(); s != nil {
		s.Signal(sig)
	}
}

func (c *container) currentSandbox() *runtime.Sandbox {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sandbox
}

func (c *container) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sandbox != nil {
		c.sandbox.Kill()
		c.sandbox.Close()
		c.sandbox = nil
	}
}

// workDir is where the container is when it starts, unless it says otherwise, and its home.
func (c *container) workDir() string { return filepath.Join(c.pod.dir, "work", c.spec.Name) }

// logFile is the log of the attempt after that many restarts.
func (c *container) logFile(restarts int32) string {
	return filepath.Join(c.pod.dir, "logs", c.spec.Name, fmt.Sprintf("%d.log", restarts))
}

// openLog starts the log of an attempt. That of the attempt before is kept for `kubectl logs --previous`.
func (c *container) openLog() (*os.File, error) {
	c.pod.mu.Lock()
	restarts := c.state.restarts
	c.pod.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(c.logFile(restarts)), 0o755); err != nil {
		return nil, err
	}
	_ = os.Remove(c.logFile(restarts - 2))
	return os.OpenFile(c.logFile(restarts), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}
