package runtime

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockkeeper/lockkeeper/lab/internal/rootfs"
)

// Sandbox is what the processes of one container share: the filesystem they see and the name of their host. It outlives
// the processes, so that a restarted container finds what it left.
type Sandbox struct {
	mnt, uts *os.File
	id       string // as in /proc/PID/ns/mnt
}

// NewSandbox builds a sandbox. staging is an empty folder that the machine lends for building the root filesystem;
// image is a folder whose programs and libraries stand for the machine's, or "".
func NewSandbox(staging, image, hostname string, mounts []rootfs.Mount) (*Sandbox, error) {
	s := &Sandbox{}
	err := rootfs.OnOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS | unix.CLONE_NEWUTS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := unix.Sethostname([]byte(hostname)); err != nil {
			return fmt.Errorf("set host name %q: %w", hostname, err)
		}
		if err := rootfs.Enter(staging, image, mounts); err != nil {
			return err
		}
		var err error
		if s.id, err = os.Readlink("/proc/thread-self/ns/mnt"); err != nil {
			return err
		}
		if s.mnt, err = os.Open("/proc/thread-self/ns/mnt"); err != nil {
			return err
		}
		s.uts, err = os.Open("/proc/thread-self/ns/uts")
		return err
	})
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close lets go of the namespaces. The kernel removes them, and their mounts, with their last process.
func (s *Sandbox) Close() {
	for _, f := range []*os.File{s.mnt, s.uts} {
		if f != nil {
			f.Close()
		}
	}
}

// Start starts a program in the sandbox, in a group of its own. A program without a slash is looked up in the PATH of
// cmd.Env, as the sandbox sees it.
func (s *Sandbox) Start(cmd *exec.Cmd) error {
	return rootfs.OnOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		if err := unix.Setns(int(s.uts.Fd()), unix.CLONE_NEWUTS); err != nil {
			return fmt.Errorf("enter host name: %w", err)
		}
		if err := unix.Setns(int(s.mnt.Fd()), unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("enter mounts: %w", err)
		}
		path, err := rootfs.LookPath(cmd.Args[0], cmd.Env)
		if err != nil {
			return err
		}
		cmd.Path, cmd.Err = path, nil
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Setpgid = true // see child.Start for why not a session
		return cmd.Start()
	})
}

// Processes lists the living processes of the sandbox.
func (s *Sandbox) Processes() []int {
	links, _ := filepath.Glob("/proc/[0-9]*/ns/mnt")
	var pids []int
	for _, link := range links {
		if id, err := os.Readlink(link); err != nil || id != s.id { // a zombie has no namespaces any more
			continue
		}
		if pid, err := strconv.Atoi(strings.Split(link, "/")[2]); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Signal sends a signal to all processes of the sandbox.
func (s *Sandbox) Signal(sig syscall.Signal) {
	for _, pid := range s.Processes() {
		_ = syscall.Kill(pid, sig)
	}
}

// Kill ends all processes of the sandbox. It repeats itself, since one may fork while the others are being killed.
func (s *Sandbox) Kill() {
	for range 100 {
		pids := s.Processes()
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
}
