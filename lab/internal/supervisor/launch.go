// Package supervisor runs one lab: it starts everything in the order in which it needs each other, watches over it, and
// is the process with which it all ends.
package supervisor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/runtime"
)

// Command is the first argument with which our own binary becomes a supervisor.
const Command = "supervise"

// The files that a supervisor inherits, besides its output.
const (
	progressFile = 3 + iota // to tell how far it is
	lifelineFile            // reads as ended when whoever started it has
	lockFile
	guardFile
	turnFile // if it has a turn
)

// message is what a supervisor tells whoever started it.
type message struct {
	Progress string `json:"progress,omitempty"`
	Error    string `json:"error,omitempty"`
	Ready    bool   `json:"ready,omitempty"`
}

// Launched is a supervisor as seen by whoever started it.
type Launched struct {
	cmd      *exec.Cmd
	claim    *instance.Claim
	messages io.ReadCloser
	lifeline io.Closer
}

// Launch starts the supervisor of a claimed instance, in namespaces of its own. If foreground, it ends when this
// process does; otherwise only as long as it is not ready.
func Launch(claim *instance.Claim, foreground bool) (*Launched, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	inst := claim.Config.Instance
	log, err := os.OpenFile(inst.Log("supervisor"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	messages, progress, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer progress.Close()
	theirEnd, lifeline, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirEnd.Close()
	held, err := claim.Files()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, Command, "--name", inst.Name)
	if foreground {
		cmd.Args = append(cmd.Args, "--foreground")
	}
	cmd.Env = append(os.Environ(), "LAB_HOME="+filepath.Dir(inst.Dir))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = append([]*os.File{progress, theirEnd}, held...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := runtime.StartIsolated(cmd); err != nil {
		return nil, err
	}
	claim.Release() // theirs now
	return &Launched{cmd: cmd, claim: claim, messages: messages, lifeline: lifeline},
		inst.RecordSupervisor(cmd.Process.Pid)
}

// Await passes progress on until the lab is ready. If it fails, the supervisor is gone when it returns.
func (l *Launched) Await(progress func(string)) error {
	scanner := bufio.NewScanner(l.messages)
	for scanner.Scan() {
		var m message
		if err := json.Unmarshal(scanner.Bytes(), &m); err != nil {
			continue
		}
		switch {
		case m.Ready:
			return nil
		case m.Error != "":
			_ = l.cmd.Wait()
			return errors.New(m.Error)
		default:
			progress(m.Progress)
		}
	}
	err := l.cmd.Wait()
	return fmt.Errorf("the supervisor ended: %w\n%s(%s)", err, lastLines(l.claim.Config.Log("supervisor"), 5),
		l.claim.Config.Log("supervisor"))
}

// Stop lets the supervisor end the lab, and waits for that.
func (l *Launched) Stop() { l.lifeline.Close(); _ = l.cmd.Wait() }

// Wait waits for the end of the supervisor.
func (l *Launched) Wait() error { return l.cmd.Wait() }

func lastLines(path string, n int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := strings.SplitAfter(strings.TrimSpace(string(b))+"\n", "\n")
	return strings.Join(lines[max(0, len(lines)-n-1):], "")
}

// inherited is a supervisor's side of Launched.
type inherited struct {
	progress *os.File
	lifeline *os.File
}

// inherit takes over the files. None may leak into a child, where they would keep a dead lab's claim.
func inherit() inherited {
	for fd := progressFile; fd <= turnFile; fd++ {
		unix.CloseOnExec(fd)
	}
	return inherited{
		progress: os.NewFile(progressFile, "progress"),
		lifeline: os.NewFile(lifelineFile, "lifeline"),
	}
}

// tell fails when nobody listens any more, which the lifeline says too.
func (i inherited) tell(m message) {
	b, err := json.Marshal(m)
	if err != nil {
		return
	}
	_, _ = i.progress.Write(append(b, '\n'))
}
