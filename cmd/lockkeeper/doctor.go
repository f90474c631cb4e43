package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/cli"
	"github.com/lockkeeper/lockkeeper/internal/machines"
)

func doctorCommand(connections *cli.Connections) *cobra.Command {
	var system, output string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find what is missing or wrong with the installation, and say how to mend it",
		Long: `Find what is missing or wrong: Kubernetes, the API, policies, rights, other budgets, fencing, the watcher, Temporal, the
worker, the keepers, Ceph as the keepers see it, CephOSDs and their rollouts, versions; and say how to mend it. It changes nothing.

To look at the rights of the watcher and the worker takes the right to create SubjectAccessReviews.
The exit code is 0 when nothing is broken, 5 when something is.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return usage(cmd, err)
			}
			command, cluster, done, err := examine(cmd, connections)
			if err != nil {
				return err
			}
			defer done()
			_, api := cluster.Clients()
			doctor := &cli.Doctor{
				Command: command, Installation: cluster, System: system, Namespace: connections.Namespace,
				Machines: func(
					ctx context.Context, p *v1alpha1.MaintenancePolicy, nodes []string,
				) ([]machines.Problem, error) {
					return machines.Examine(ctx, api, p, nodes)
				},
			}
			x := doctor.Examine(cmd.Context())
			err = printed(cmd, x, output)
			if err == nil && !x.Healthy {
				return cli.ErrNo
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&system, "system-namespace", defaultSystem, "where the watcher and the worker run")
	flags.StringVarP(&output, "output", "o", "", "json or yaml")
	return cmd
}
