package main

import (
	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "lab",
		Short: "A small real world on one machine: Kubernetes, Ceph, Temporal",
		Long: `lab runs a Kubernetes control plane with nodes whose pods are processes of this machine, a Ceph cluster on top of it in the
shape that Rook gives it, and Temporal. Each lab has a name, a folder and ports of its own, so several may run side by side.`,
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(newUp(), newDown(), newStatus(), newKubeconfig(), newEnv(), newFault(), newLoad(),
		newVolume(), newVolumeLoad(), newAutoscaler(), newKarpenter(), newSupervise())
	return root
}

// nameFlag adds --name.
func nameFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "name", instance.DefaultName, "which lab")
}

// withName makes a command that needs to know the lab's configuration and nothing else.
func withName(use, short string, run func(*cobra.Command, instance.Config) error) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := instance.Load(name)
			if err != nil {
				return err
			}
			return run(cmd, cfg)
		},
	}
	nameFlag(cmd, &name)
	return cmd
}
