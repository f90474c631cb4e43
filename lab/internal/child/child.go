// Package child runs the programs that the supervisor of a lab watches over.
package child

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Spec describes a program.
type Spec struct {
	Name string
	Path string
	Args []string // without argv[0]
	Env  []string // added to the supervisor's own
	Log  string   // file that takes its output, appended to
	// Grace is how long Stop waits before it kills; 0 is 10 s.
	Grace time.Duration
}

// Process is a running program. It is restarted whenever it ends by itself, as a service manager would.
type Process struct {
	Spec

	mu       sync.Mutex
	cmd      *exec.Cmd
	stopped  bool
	restarts int
	lastErr  error
	away     time.Duration // at least, before the next start; 0: as after any end
	cancel   context.CancelFunc
	done     chan struct{}
}

// State is a snapshot for `lab status`.
type State struct {
	Name     string `json:"name"`
	PID      int    `json:"pid"`
	Restarts int    `json:"restarts"`
	LastExit string `json:"lastExit,omitempty"`
	Log      string `json:"log"`
}

const (
	restartDelay = time.Second
	defaultGrace = 10 * time.Second
)

var errStopped = errors.New("stopped")

// Start runs the program until Stop. The error is that of the first start: later ones are retried.
func Start(spec Spec) (*Process, error) {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Process{Spec: spec, cancel: cancel, done: make(chan struct{})}
	cmd, err := p.start()
	if err != nil {
		cancel()
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	go p.watch(ctx, cmd)
	return p, nil
}

func (p *Process) start() (*exec.Cmd, error) {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own, so that signals reach all of it and nothing else. Not a session of its own: Linux shares the
	// processors among sessions first, and a lab has forty processes. What is tried in it would get a fortieth.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped { // nobody would end what starts now
		return nil, errStopped
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.cmd = cmd
	return cmd, nil
}

func (p *Process) watch(ctx context.Context, cmd *exec.Cmd) {
	defer close(p.done)
	for {
		var err error
		if cmd != nil {
			err = cmd.Wait()
		}
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		p.cmd, p.restarts = nil, p.restarts+1
		delay := max(restartDelay, p.away)
		p.away = 0
		if p.lastErr = err; err == nil {
			p.lastErr = fmt.Errorf("exit status 0")
		}
		p.mu.Unlock()
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return
		}
		if cmd, err = p.start(); err != nil {
			cmd = nil
		}
	}
}

// State tells how the program is.
func (p *Process) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := State{Name: p.Name, Restarts: p.restarts, Log: p.Log}
	if p.cmd != nil {
		s.PID = p.cmd.Process.Pid
	}
	if p.lastErr != nil {
		s.LastExit = p.lastErr.Error()
	}
	return s
}

// Stop asks the program to end, makes it end after a grace period, and waits.
func (p *Process) Stop() {
	p.stop(syscall.SIGTERM)
	select {
	case <-p.done:
		return
	case <-time.After(cmp.Or(p.Grace, defaultGrace)):
	}
	p.stop(syscall.SIGKILL)
	<-p.done
}

// Kill ends the program without ceremony: for those whose data is on disk already.
func (p *Process) Kill() {
	p.stop(syscall.SIGKILL)
	<-p.done
}

// Crash ends the program as a fatal bug in it would. It is started again as after any end of its own, but not before it
// was away for so long.
func (p *Process) Crash(away time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("%s does not run", p.Name)
	}
	p.away = away
	return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
}

// Hang stops the program where it is, and returns when it goes on: after so long.
func (p *Process) Hang(lasting time.Duration) error {
	p.mu.Lock()
	cmd := p.cmd
	p.mu.Unlock()
	if cmd == nil {
		return fmt.Errorf("%s does not run", p.Name)
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(lasting)
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGCONT); !errors.Is(err, syscall.ESRCH) { // it was killed meanwhile
		return err
	}
	return nil
}

// stop keeps the program from being started again and sends it a signal.
func (p *Process) stop(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.cancel()
	if p.cmd != nil {
		_ = syscall.Kill(-p.cmd.Process.Pid, s)
	}
}
