package main

import (
	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/lab/internal/supervisor"
)

// newSupervise is what `lab up` starts in namespaces of its own.
func newSupervise() *cobra.Command {
	var name string
	var foreground bool
	cmd := &cobra.Command{
		Use: supervisor.Command, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return supervisor.Supervise(name, foreground) },
	}
	nameFlag(cmd, &name)
	cmd.Flags().BoolVar(&foreground, "foreground", false, "")
	return cmd
}
