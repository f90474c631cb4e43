package lab

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Lockkeeper is the worker and the watcher of a benchmark. They log into Dir.
type Lockkeeper struct {
	Dir string

	running []*exec.Cmd
}

// Start starts both, each with the rights of its own kubeconfig.
func (l *Lockkeeper) Start(worker, watch string) error {
	return errors.Join( // the worker first: KillWorker
		l.start("worker", worker, "lab-in-image", "lockkeeper-worker"),
		l.start("watch", watch, "lockkeeper", "watch", "--leader-elect-namespace", "lockkeeper-system", "--health-addr", "0",
			"--metrics-addr", "0"),
	)
}

func (l *Lockkeeper) start(who, kubeconfig, program string, args ...string) error {
	log, err := os.OpenFile(filepath.Join(l.Dir, who+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()                   // the child has its own descriptor
	c := exec.Command(program, args...) //nolint:noctx // Stop and Kill end it
	c.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // with us, whatever way we end
	if err := c.Start(); err != nil {
		return err
	}
	l.running = append(l.running, c)
	return nil
}

// Stop ends both as an update does.
func (l *Lockkeeper) Stop() { l.end(syscall.SIGTERM) }

// Kill ends both as a lost machine does.
func (l *Lockkeeper) Kill() { l.end(syscall.SIGKILL) }

// KillWorker ends the worker alone as a lost machine does.
func (l *Lockkeeper) KillWorker() {
	if len(l.running) == 0 {
		return
	}
	_ = l.running[0].Process.Kill() // Start starts it first
	_ = l.running[0].Wait()
	l.running = l.running[1:]
}

func (l *Lockkeeper) end(s syscall.Signal) {
	for _, c := range l.running {
		_ = c.Process.Signal(s)
		_ = c.Wait()
	}
	l.running = nil
}

// Kubeconfig is the kubeconfig of worker or watch in a folder.
func Kubeconfig(dir, who string) string { return filepath.Join(dir, who+".kubeconfig") }
