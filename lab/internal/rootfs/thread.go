package rootfs

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnOwnThread runs f on an OS thread that ends with it. Namespaces belong to threads, and the Go runtime must never
// reuse one that has left those of the process.
func OnOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: that is what ends the thread
		done <- f()
	}()
	return <-done
}

// MayUnshare tries what root may usually do, but not in every container.
func MayUnshare() bool {
	return OnOwnThread(func() error { return unix.Unshare(unix.CLONE_NEWNS) }) == nil
}
