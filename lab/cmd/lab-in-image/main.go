// Command lab-in-image becomes another program that sees the programs and libraries of the lab's Ceph release, so that
// it can be a client of the lab's Ceph: an older release may not know its keys.
//
// It is a program of its own because it starts often, and one that holds Kubernetes takes a third of a second to start.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/rootfs"
)

func init() {
	// The kernel knows this process by its main thread, whose root filesystem is the one that the program will see.
	runtime.LockOSThread()
}

func main() {
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "lab-in-image:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	name := os.Getenv("LAB_NAME")
	if name == "" {
		name = instance.DefaultName
	}
	cmd := &cobra.Command{
		Use:           "lab-in-image PROGRAM [ARGUMENT…]",
		Short:         "Become a program that sees the programs and libraries of the lab's Ceph release",
		Args:          cobra.MinimumNArgs(1),
		RunE:          func(_ *cobra.Command, args []string) error { return become(name, args) },
		Example:       `  lab-in-image lockkeeper-worker`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.Flags().StringVar(&name, "name", name, "which lab (default: $LAB_NAME)")
	cmd.Flags().SetInterspersed(false) // what follows the program is the program's
	return cmd
}

func become(name string, args []string) error {
	cfg, err := instance.Load(name)
	if err != nil {
		return err
	}
	root, err := os.Readlink(cfg.ImageLink())
	if err == nil {
		return rootfs.Become(root, cfg.Path("in-image"), args, os.Environ())
	}
	path, err := exec.LookPath(args[0]) // the release is the machine's
	if err != nil {
		return err
	}
	return syscall.Exec(path, args, os.Environ())
}
