package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/cli"
)

// fenceCommand is what people ask about fencing. Each subcommand connects by itself.
func fenceCommand(connections *cli.Connections) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fence",
		Short: "Which Machines are held back from fencing, and release or hold one by hand",
		Long: `Tell which Machines are held back from whatever fences nodes (spec.fencing of a MaintenancePolicy), and why, release
one by hand, or hold it again. lockkeeper itself fences nobody: it lets go, one Machine at a time.`,
	}
	cmd.AddCommand(fenceStatusCommand(connections), fenceReleaseCommand(connections), fenceHoldCommand(connections))
	return cmd
}

func fenceStatusCommand(connections *cli.Connections) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status [NODE]",
		Short: "Which Machines are held, which nodes are to be fenced, and what they wait for",
		Args:  args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			return ask(cmd, connections, output, func(ctx context.Context, command *cli.Command) error {
				return command.FenceStatus(ctx, connections.Namespace, append(names, "")[0])
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	return cmd
}

func fenceReleaseCommand(connections *cli.Connections) *cobra.Command {
	var in cli.FenceReleaseInput
	var f jobFlags
	cmd := &cobra.Command{
		Use:   "release NODE --reason WHY",
		Short: "Let a node's Machine be fenced whatever is known of its storage",
		Long: `Let a node's Machine be fenced whatever is known of its storage: without a quorum of Ceph, say, nothing is released
otherwise. Who, when, why, and what was against it are kept in status, event and history. One thing cannot be passed
over: while another Machine is released, this one waits. What is fenced then cannot be taken back.`,
		Example: `  lockkeeper fence release node-a --plan                  what it would pass over; changes nothing
  lockkeeper fence release node-a --reason 'burnt, and Ceph has no quorum without its replacement'`,
		Args: args(oneNode),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := f.check(); err != nil {
				return usage(cmd, err)
			}
			command, cluster, done, err := examine(cmd, connections)
			if err != nil {
				return err
			}
			defer done()
			in.Node, in.Plan, in.StayOptions, command.Output = names[0], f.plan, f.options, f.output
			in.Policy = qualified(in.Policy, connections.Namespace)
			if !in.Plan {
				if in.By, err = cluster.WhoAmI(cmd.Context()); err != nil {
					return err
				}
			}
			return command.FenceRelease(cmd.Context(), in)
		},
	}
	f.add(cmd, "fence", "ends", "print what it would pass over, and change nothing")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why it may not wait: kept in status, event and history")
	cmd.Flags().StringVar(&in.Policy, "policy", "",
		"MaintenancePolicies, as namespace/name or as a name in --namespace, with "+
			"commas between them (default: all whose storage the node hosts)")
	return cmd
}

func fenceHoldCommand(connections *cli.Connections) *cobra.Command {
	var output string
	var plan bool
	cmd := &cobra.Command{
		Use:   "hold NODE",
		Short: "Take the release of a node's Machine back, and end its fence",
		Long: `End the fence of a node: a release is taken back, and the Machine is held again, unless it is gone. A deletion that has
begun is not taken back by that. The watcher starts the fence again at the next change of the node or of its Machine.

The same with Temporal's CLI: temporal workflow signal --workflow-id fence/NODE --name abort`,
		Args: args(oneNode),
		RunE: func(cmd *cobra.Command, names []string) error {
			return ask(cmd, connections, output, func(ctx context.Context, command *cli.Command) error {
				return command.FenceHold(ctx, names[0], plan)
			})
		},
	}
	cmd.Flags().BoolVar(&plan, "plan", false, "say what would happen, and change nothing")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml: print the job as it is then")
	return cmd
}
