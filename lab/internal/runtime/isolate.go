package runtime

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lockkeeper/lockkeeper/lab/internal/rootfs"
)

// StartIsolated starts a program as the first process of a PID namespace, with mounts of its own, as root of a user
// namespace unless we are root already. When that process ends, however it ends, the kernel ends everything that
// descends from it and forgets its mounts. The program must call Isolated before anything else.
func StartIsolated(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	attr := cmd.SysProcAttr
	attr.Cloneflags |= unix.CLONE_NEWPID | unix.CLONE_NEWNS
	if !rootfs.MayUnshare() {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	err := cmd.Start()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("cannot make namespaces (%w): run as root, or allow unprivileged user namespaces: `sysctl -w "+
			"user.max_user_namespaces=10000`, "+
			"on Debian before 11 also `kernel.unprivileged_userns_clone=1`, on Ubuntu "+
			"`kernel.apparmor_restrict_unprivileged_userns=0`; in a container, give it CAP_SYS_ADMIN", err)
	}
	return err
}

// Isolated completes, from inside, what StartIsolated began.
func Isolated() error {
	if os.Getpid() != 1 {
		return errors.New("not the first process of a PID namespace")
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// The machine's /proc numbers processes as the machine does, and to signal by such a number would hit somebody else.
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc for the PID namespace: %w (in a container, /proc must not be masked)", err)
	}
	go reap()
	return nil
}

// reapAfter is how long a dead process may wait for whoever started it.
const reapAfter = 2 * time.Second

// reap collects orphans, which are the first process's to collect. Our own children are dead for an instant only, since
// somebody waits for each; whoever stays dead is an orphan.
func reap() {
	sigchld := make(chan os.Signal, 1)
	signal.Notify(sigchld, unix.SIGCHLD)
	for range sigchld {
		for {
			pid := zombie()
			if pid == 0 {
				break
			}
			time.Sleep(reapAfter)
			if zombie() == pid {
				var status unix.WaitStatus
				_, _ = unix.Wait4(pid, &status, unix.WNOHANG, nil)
			}
		}
	}
}

// zombie names a dead child without collecting it, or gives 0.
func zombie() int {
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
		return 0
	}
	// si_pid follows the four ints of the header on 64-bit Linux; the library does not name it.
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), 16)))
}
