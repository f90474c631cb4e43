// Command lab runs a small real world on one machine: a Kubernetes control plane with nodes whose pods are processes,
// Ceph on top of it, and Temporal.
//
// The same binary is etcd, kube-apiserver, kube-controller-manager and kube-scheduler, when called by that name or with
// it as the first argument.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

func init() {
	// The main goroutine keeps the main thread to itself, so that no other goroutine changes the namespaces of the thread
	// by which the kernel knows this process.
	runtime.LockOSThread()
}

func main() {
	if name := filepath.Base(os.Args[0]); programs[name] != nil {
		os.Exit(programs[name](os.Args))
	}
	if len(os.Args) > 1 && programs[os.Args[1]] != nil {
		os.Exit(programs[os.Args[1]](os.Args[1:]))
	}
	if err := newCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}
