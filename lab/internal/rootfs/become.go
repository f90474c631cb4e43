package rootfs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// Become turns this process into another program, which sees an image's programs and libraries instead of the
// machine's. It returns only if that fails. The calling goroutine must be locked to the main thread. staging is an
// empty folder, which any number may share.
//
// An ordinary user needs a user namespace, which a process with several threads cannot enter: then the program is a
// child of this process, which hands on signals and ends as it does.
func Become(image, staging string, args, env []string) error {
	if os.Getenv(becomeEnv) == "" && !MayUnshare() {
		return becomeParent()
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(staging, 0o755); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := Enter(staging, image, nil); err != nil {
		return err
	}
	if err := os.Chdir(here); err != nil { // it was a folder of the machine's programs
		err = os.Chdir("/")
		if err != nil {
			return err
		}
	}
	path, err := LookPath(args[0], env)
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", path, unix.Exec(path, args, env))
}

// becomeEnv tells a child of Become that it has its user namespace.
const becomeEnv = "LAB_IN_IMAGE"

// becomeParent starts this very command again in a user namespace of its own, and ends as it does.
func becomeParent() error {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), becomeEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot make namespaces (%w): run as root, or allow unprivileged user namespaces", err)
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	os.Exit(exitCode(cmd.ProcessState))
	return nil
}

// exitCode is that of a shell: 128 and the number of the signal.
func exitCode(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}
