package runtime

import "runtime"

// onOwnThread runs f on an OS thread that ends with it. Namespaces belong to threads, and the Go runtime must never
// reuse one that has left those of the process.
func onOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: that is what ends the thread
		done <- f()
	}()
	return <-done
}
