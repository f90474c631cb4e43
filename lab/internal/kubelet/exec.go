package kubelet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/lockkeeper/lockkeeper/lab/internal/runtime"
)

const (
	streamIdle     = 4 * time.Hour
	streamCreation = 30 * time.Second
)

var execProtocols = []string{
	remotecommand.StreamProtocolV4Name, remotecommand.StreamProtocolV3Name, remotecommand.StreamProtocolV2Name,
	remotecommand.StreamProtocolV1Name,
}

func (k *Kubelet) serveExec(w http.ResponseWriter, r *http.Request) {
	c, err := k.container(r, r.PathValue("container"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, executor{c}, "", "", "", r.URL.Query()["command"], options, streamIdle,
		streamCreation, execProtocols)
}

// executor runs commands in one container, whatever the protocol calls it.
type executor struct{ *container }

func (e executor) ExecInContainer(
	ctx context.Context, _, _, _ string, args []string, in io.Reader, out, errOut io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	cmd := &exec.Cmd{Args: args, Stdin: in}
	// A nil stream must become a nil interface.
	if out != nil {
		cmd.Stdout = out
	}
	if errOut != nil {
		cmd.Stderr = errOut
	}
	run := e.run
	if tty {
		run = func(ctx context.Context, cmd *exec.Cmd) error { return e.runInTerminal(ctx, cmd, resize) }
	}
	err := run(ctx, cmd)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return utilexec.CodeExitError{Err: err, Code: int(exitState(exit.ProcessState).ExitCode)}
	}
	return err
}

// runInTerminal lets the command's input and output pass through a terminal.
func (c *container) runInTerminal(ctx context.Context, cmd *exec.Cmd, resize <-chan remotecommand.TerminalSize) error {
	user, program, err := runtime.Terminal()
	if err != nil {
		return err
	}
	defer user.Close()
	in, out := cmd.Stdin, cmd.Stdout
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setctty: true}
	go func() {
		for size := range resize {
			_ = runtime.ResizeTerminal(user, size.Width, size.Height)
		}
	}()
	if in != nil {
		go func() { _, _ = io.Copy(user, in) }()
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		if out != nil {
			_, _ = io.Copy(out, user) // ends with an error when the last program has closed its end
		}
	}()
	err = c.run(ctx, cmd)
	program.Close()
	<-copied
	return err
}

func (k *Kubelet) servePortForward(w http.ResponseWriter, r *http.Request) {
	p, err := k.pod(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, forwarder{p.snapshot().ip}, "", "", options, streamIdle, streamCreation,
		portforward.SupportedProtocols)
}

// forwarder connects to the ports of the pod with that address.
type forwarder struct{ ip string }

func (f forwarder) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(f.ip, strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(conn, stream)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, conn)
	return err
}
