package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/internal/cli"
	"github.com/lockkeeper/lockkeeper/workflows"
)

// signalCommands are the signals that a drain takes.
func signalCommands(connections *cli.Connections) []*cobra.Command {
	signals := []struct{ name, short, long string }{
		{workflows.SignalPause, "Hold the drain of a node where it is", "What is under way stays protected: the lease, noout and the cordon remain."},
		{workflows.SignalResume, "Let a paused drain go on", ""},
		{workflows.SignalAbort, "Undo the drain of a node", "The node is uncordoned if the drain cordoned it, noout is unset, and the lease is given back."},
		{workflows.SignalDone, "Say that the work on a node is finished", "The drain uncordons the node if it cordoned it, and ends when the storage is whole again. Not needed after a reboot\nand an uncordon, or when the node is deleted: the drain sees those."},
	}
	var out []*cobra.Command
	for _, s := range signals {
		long := s.short + "."
		if s.long != "" {
			long += " " + s.long
		}
		out = append(out, &cobra.Command{
			Use: s.name + " NODE", Short: s.short, Args: args(oneNode),
			Long: long + fmt.Sprintf("\n\nThe same with Temporal's CLI: temporal workflow signal --workflow-id drain/NODE --name %s", s.name),
			RunE: func(cmd *cobra.Command, names []string) error {
				command, _, done, err := connect(cmd, connections)
				if err != nil {
					return err
				}
				defer done()
				return command.Signal(cmd.Context(), names[0], s.name)
			},
		})
	}
	return out
}
