package main

import (
	"os"
	"os/exec"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/runtime"
)

// newInImage makes a program a client of the lab's Ceph: with the libraries of its release, since an older one may not
// know its keys.
func newInImage() *cobra.Command {
	name := os.Getenv("LAB_NAME")
	if name == "" {
		name = defaultName
	}
	cmd := &cobra.Command{
		Use:   "in-image PROGRAM [ARGUMENT…]",
		Short: "Become a program that sees the programs and libraries of the lab's Ceph release",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := instance.Load(name)
			if err != nil {
				return err
			}
			root, err := os.Readlink(cfg.ImageLink())
			if err == nil {
				return runtime.Become(root, cfg.Path("in-image"), args, os.Environ())
			}
			path, err := exec.LookPath(args[0]) // the release is the machine's
			if err != nil {
				return err
			}
			return syscall.Exec(path, args, os.Environ())
		},
		Example: `  lab in-image lockkeeper-worker`,
	}
	cmd.Flags().StringVar(&name, "name", name, "which lab (default: $LAB_NAME)")
	cmd.Flags().SetInterspersed(false) // what follows the program is the program's
	return cmd
}
