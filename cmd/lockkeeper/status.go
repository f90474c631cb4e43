package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/lockkeeper/lockkeeper/cli"
)

func statusCommand(connections *cli.Connections) *cobra.Command {
	var watch, all bool
	var output string
	cmd := &cobra.Command{
		Use:   "status [NODE|JOB]",
		Short: "May I drain? Who holds the lease, who waits, and for what",
		Long: `Answer "may I drain?" for every MaintenancePolicy, and tell who holds the lease, who waits for it and why,
which noout flags are set until when, and which drains and rollouts run and what they wait for.

With NODE, tell about the policy that guards it and about its drain; with NAMESPACE/NAME of a CephOSD,
update-osds/[NAMESPACE/]NAME or restart-osds[/NAMESPACE], about that rollout: what it does, which OSDs are not back and why,
and what its CephOSD's status says when Temporal has forgotten the last run. Without Temporal the answer is what the keepers
and rollouts last reported, and says so.`,
		Example: `  lockkeeper status
  lockkeeper status -w               print every change
  lockkeeper status node-a -w        follow the drain of a node
  lockkeeper status ceph/osds        the rollout of a CephOSD
  lockkeeper status ceph/osds -w     follow it until it ends, through halts, too
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
			id := ""
			if len(names) == 1 {
				job, err := cli.FullName(names[0], connections.CurrentNamespace)
				if err != nil {
					return err
				}
				if id, err = cli.JobID(job); err != nil {
					return &cli.ExitError{Code: cli.ExitUsage, Err: err}
				}
				gather = func(ctx context.Context) (cli.Status, error) { return command.JobStatus(ctx, id) }
			}
			if watch {
				if id != "" && command.Runs(cmd.Context(), id) {
					return command.Follow(cmd.Context(), id)
				}
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
			return printed(cmd, s, output)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&watch, "watch", "w", false, "print every change, until interrupted; of a job: until it ends")
	flags.BoolVarP(&all, "all-namespaces", "A", false, "the policies of all namespaces; the default without --namespace")
	flags.StringVarP(&output, "output", "o", "", "json or yaml")
	return cmd
}

func checkStatus(watch, all bool, output, namespace string) error {
	switch {
	case all && namespace != "":
		return errors.New("--all-namespaces: does not go with --namespace")
	case watch && output != "":
		return errors.New("--watch: is for people; read changes in JSON with `kubectl get maintenancepolicies,cephosds -w " +
			"-o json`")
	}
	return cli.CheckOutput(output)
}
