package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/internal/cli"
)

func statusCommand(connections *cli.Connections) *cobra.Command {
	var watch, all bool
	var output string
	cmd := &cobra.Command{
		Use:   "status [NODE]",
		Short: "May I drain? Who holds the lease, who waits, and for what",
		Long: `Answer "may I drain?" for every MaintenancePolicy, and tell who holds the lease, who waits for it and why,
which noout flags are set until when, and which drains run and what they wait for.

With NODE, tell about the policy that guards it and about its drain. Without Temporal the answer is what the keepers
last reported, and says so.`,
		Example: `  lockkeeper status
  lockkeeper status -w               print every change
  lockkeeper status node-a -w        follow the drain of a node
  lockkeeper status -n rook-ceph -o json`,
		Args: args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := checkStatus(watch, all, output, connections.Namespace); err != nil {
				return usage(cmd, err)
			}
			command, cfg, done, err := connect(cmd, connections)
			if err != nil {
				return err
			}
			defer done()
			gather := func(ctx context.Context) (cli.Status, error) { return command.Status(ctx, connections.Namespace) }
			if len(names) == 1 {
				gather = func(ctx context.Context) (cli.Status, error) { return command.NodeStatus(ctx, names[0]) }
			}
			switch {
			case watch && len(names) == 1 && command.Drains(cmd.Context(), names[0]):
				return command.Follow(cmd.Context(), names[0])
			case watch:
				changes, err := cli.PolicyChanges(cmd.Context(), cfg, connections.Namespace)
				if err != nil {
					return err
				}
				return command.Watch(cmd.Context(), changes, gather)
			}
			s, err := gather(cmd.Context())
			if err != nil {
				return err
			}
			if output != "" {
				return cli.Encode(cmd.OutOrStdout(), s, output)
			}
			s.Write(cmd.OutOrStdout())
			return nil
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&watch, "watch", "w", false, "print every change, until interrupted; of a node that is drained: until the drain ends")
	flags.BoolVarP(&all, "all-namespaces", "A", false, "the policies of all namespaces; the default without --namespace")
	flags.StringVarP(&output, "output", "o", "", "json or yaml")
	return cmd
}

func checkStatus(watch, all bool, output, namespace string) error {
	switch {
	case all && namespace != "":
		return errors.New("--all-namespaces: does not go with --namespace")
	case watch && output != "":
		return errors.New("--watch: is for people; read changes in JSON with `kubectl get maintenancepolicies -w -o json`")
	}
	return cli.CheckOutput(output)
}
